"""Lines of the log: written if they can be, and never more important than the work."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from typing import TextIO

import pytest
import structlog

from berth import log


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_a_line_has_its_keys_and_no_secret() -> None:
    stream = io.StringIO()
    log.configure("info", stream)
    with log.bound(ref="Service a/b"):
        log.get("berth.test").info("address bound", address="10.0.0.1", secret="hush")
        log.get("berth.test").debug("nobody asked for this")
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().endswith(
        '\tINFO\tberth.test\taddress bound\t{"address":"10.0.0.1","secret":"***","ref":"Service a/b"}\n'
    )


@pytest.fixture(params=["full", "closed"])
def useless(request: pytest.FixtureRequest) -> Iterator[TextIO]:
    stream = open("/dev/full", "w")  # noqa: SIM115
    if request.param == "closed":
        stream.close()
    yield stream
    with suppress(OSError):
        stream.close()


def test_a_line_that_cannot_be_written_stops_nobody(useless: TextIO) -> None:
    log.configure("info", useless)
    for _ in range(200):
        log.get("berth.test").info("lost", padding="x" * 200)
