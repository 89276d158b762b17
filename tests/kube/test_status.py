"""Answers → errors, by the server's reason and then by code."""

from __future__ import annotations

import orjson
import pytest

from berth import errors
from berth.kube.status import failure


def status(code: int, reason: str, **details: object) -> bytes:
    body = {"kind": "Status", "code": code, "reason": reason, "message": "said so", "details": details}
    return orjson.dumps(body)


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (409, "", errors.Conflict),
        (410, "Expired", errors.Gone),
        (410, "Gone", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (404, "NotFound", errors.NotFound),
        (403, "Forbidden", errors.Forbidden),
        (401, "Unauthorized", errors.Unauthorized),
        (400, "BadRequest", errors.BadRequest),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerError),
        (504, "Timeout", errors.ServerError),
        (503, "", errors.ServerError),
        (415, "UnsupportedMediaType", errors.StatusError),
        (302, "", errors.StatusError),
    ],
)
def test_the_reason_decides_and_then_the_code(
    code: int, reason: str, expected: type[errors.StatusError]
) -> None:
    error = failure(code, status(code, reason))
    assert type(error) is expected
    assert (error.code, error.message, error.status_reason) == (code, "said so", reason)


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b"[1]", b'{"kind":"Pod"}', b"\xff\xfe"])
def test_a_body_that_is_no_status_leaves_the_code(body: bytes) -> None:
    error = failure(502, body)
    assert type(error) is errors.ServerError
    assert error.code == 502
    assert error.message


def test_a_long_page_of_a_proxy_is_cut_short() -> None:
    assert len(failure(502, b"x" * 100_000).message) <= 300


@pytest.mark.parametrize(
    ("header", "seconds"), [("3", 3.0), ("", None), ("Wed, 21 Oct 2015 07:28:00 GMT", None)]
)
def test_retry_after_is_read_when_it_is_a_number(header: str, seconds: float | None) -> None:
    assert failure(429, b"", header).retry_after_seconds == seconds


def test_retry_after_may_also_be_in_the_status() -> None:
    assert failure(500, status(500, "ServerTimeout", retryAfterSeconds=2)).retry_after_seconds == 2


def test_another_uid_under_the_same_name_is_a_conflict() -> None:
    causes = [{"field": "metadata.uid", "reason": "FieldValueInvalid"}]
    assert type(failure(422, status(422, "Invalid", causes=causes))) is errors.Conflict
