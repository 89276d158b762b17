"""`berth ledger` as a function of tests, beside a running API or without one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog
from typer.testing import CliRunner, Result

from berth.cli.ledger import app

Run = Callable[..., "Outcome"]


class Outcome:
    def __init__(self, done: Result) -> None:
        self.code, self.out, self.err = done.exit_code, done.stdout, done.stderr
        self.failure = done.exception

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


@contextmanager
def ledger_commands(database: str, pepper: Path) -> Iterator[Run]:
    """Each in a thread with an event loop of its own; the test's own loop may serve the API. What ends in
    anything but an exit code is a failure of the test.
    """

    def run(*words: str, stdin: str = "", database: str = database, pepper: Path = pepper) -> Outcome:
        where = ["--database", database, "--pepper-file", str(pepper)]
        with ThreadPoolExecutor(1) as thread:
            outcome = Outcome(thread.submit(CliRunner().invoke, app, [*where, *words], input=stdin).result())
        assert outcome.failure is None or isinstance(outcome.failure, SystemExit), outcome.failure
        return outcome

    yield run
    structlog.reset_defaults()  # the commands configure the log of their process
