"""Child processes of tests: neighbours and whole API servers, started, killed and waited for."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.processes import wait_until

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@dataclass(slots=True)
class Neighbour:
    """A neighbour process that can be stopped and started again on the port it found free at first."""

    kind: str
    folder: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.support.neighbours",
            self.kind,
            str(self.folder),
            str(self.port),
        ]
        up = self.folder / "up"
        up.unlink(missing_ok=True)
        self.process = subprocess.Popen(command, cwd=ROOT)
        assert wait_until(up.exists, 60), f"{self.kind} does not start"
        self.port = int(up.read_text())

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def say(self, name: str, text: str) -> None:
        """Replaced in one step, so that the process never reads half of it."""
        part = self.folder / f"{name}.part"
        part.write_text(text)
        part.replace(self.folder / name)

    def seen(self) -> list[dict[str, Any]]:
        file = self.folder / "seen"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@contextmanager
def neighbour(kind: str, folder: Path) -> Iterator[Neighbour]:
    folder.mkdir(exist_ok=True)
    one = Neighbour(kind, folder)
    one.start()
    try:
        yield one
    finally:
        one.kill()


@dataclass(slots=True)
class ApiProcess:
    """`berth api` as a process of its own."""

    process: subprocess.Popen[str]
    url: str
    errors: Path

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


PROGRAM = "import sys; from berth.cli.api import api; import typer; typer.run(api)"


def start_api(
    folder: Path, *flags: str, program: str = PROGRAM, env: dict[str, str] | None = None
) -> ApiProcess:
    """Start it and wait until it says where it listens."""
    errors = folder / f"api-{os.urandom(4).hex()}.log"
    with errors.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", program, "--listen", "127.0.0.1:0", *flags],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=folder,
            env={**os.environ, **(env or {})},
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    if "listening on" not in line:
        process.stdout.close()
        process.wait(60)
        raise AssertionError(f"berth api did not start: {errors.read_text()}")
    return ApiProcess(process, line.split()[-1], errors)


@contextmanager
def api_process(
    folder: Path, *flags: str, program: str = PROGRAM, env: dict[str, str] | None = None
) -> Iterator[ApiProcess]:
    one = start_api(folder, *flags, program=program, env=env)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.kill()
        assert one.process.stdout is not None
        one.process.stdout.close()
