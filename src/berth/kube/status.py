"""The one border between HTTP answers and our errors: a table by the server's own reason, then by code.

Kubernetes answers with a `Status` object whose `reason` is more exact than the code: 409 is AlreadyExists
(choose another name) or Conflict (read again). Proxies in between answer with plain text; then the code
decides. Nobody compares message texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from berth import errors

BY_REASON: Mapping[str, type[errors.StatusError]] = {
    "AlreadyExists": errors.AlreadyExists,
    "BadRequest": errors.BadRequest,
    "Conflict": errors.Conflict,
    "Expired": errors.Gone,
    "Forbidden": errors.Forbidden,
    "Gone": errors.Gone,
    "InternalError": errors.ServerError,
    "Invalid": errors.Invalid,
    "NotFound": errors.NotFound,
    "ServerTimeout": errors.ServerError,
    "ServiceUnavailable": errors.ServerError,
    "StorageReadError": errors.ServerError,
    "Timeout": errors.ServerError,
    "TooManyRequests": errors.TooManyRequests,
    "Unauthorized": errors.Unauthorized,
}

BY_CODE: Mapping[int, type[errors.StatusError]] = {
    400: errors.BadRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Gone,
    422: errors.Invalid,
    429: errors.TooManyRequests,
}

LONGEST_TEXT = 300


def failure(code: int, body: bytes, retry_after: str = "") -> errors.StatusError:
    """The error an unsuccessful answer means."""
    return from_status(parse_status(body), code, body, _seconds(retry_after))


def from_status(
    status: Mapping[str, Any], code: int, body: bytes = b"", retry_after_seconds: float | None = None
) -> errors.StatusError:
    """The error a Status object means; also used for the ERROR events of a watch."""
    code = status.get("code") or code
    reason = str(status.get("reason") or "")
    details = status.get("details") or {}
    if retry_after_seconds is None:
        retry_after_seconds = details.get("retryAfterSeconds") or None
    return _type(reason, code, details)(
        code,
        str(status.get("message") or _plain(body) or f"the API server answered {code}"),
        status_reason=reason,
        details=details,
        retry_after_seconds=retry_after_seconds,
    )


def parse_status(body: bytes) -> Mapping[str, Any]:
    """The Status object in a body, or an empty one if the body is something else."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) and parsed.get("kind") == "Status" else {}


def _type(reason: str, code: int, details: Mapping[str, Any]) -> type[errors.StatusError]:
    if any(cause.get("field") == "metadata.uid" for cause in details.get("causes") or ()):
        return errors.Conflict  # another object has that name now; the server calls our UID an invalid change
    found = BY_REASON.get(reason) or BY_CODE.get(code)
    return found or (errors.ServerError if code >= 500 else errors.StatusError)


def _seconds(header: str) -> float | None:
    # The other form of Retry-After, a date, is not used by API servers; without a number we use our own
    # backoff.
    return float(header) if header.isdigit() else None


def _plain(body: bytes) -> str:
    return " ".join(body[:LONGEST_TEXT].decode(errors="replace").split())
