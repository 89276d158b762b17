"""Runs the `go` command: its environment, its progress, and what its failures mean for a person."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from berth.devcluster import launch
from berth.devcluster.programs import parse_version
from berth.errors import UserError

# From this version on `go` fetches a newer tool chain by itself when a module asks for one.
OLDEST = (1, 21, 0)
LINE_BYTES = 1 << 24  # a linker that fails can say all of it in one line
ELSEWHERE = "or set KUBEBUILDER_ASSETS to a directory with kube-apiserver, etcd and kubectl"
NO_NETWORK = "the Go module proxy cannot be reached: check the network and `go env GOPROXY`"
FAILURES = {
    "no space left on device": "the disk is full: free 5 GB where `go env GOCACHE GOMODCACHE` point",
    "disk quota exceeded": "the quota is used up: free 5 GB where `go env GOCACHE GOMODCACHE` point",
    "requires go >=": "this Go is too old: install a newer one, or let it fetch one (GOTOOLCHAIN=auto)",
    "signal: killed": "the compiler was killed, most likely for memory: 3 GB are wanted",
    "cannot allocate memory": "the machine is out of memory: 3 GB are wanted",
    "permission denied": "a file may not be written: check who owns what `go env GOCACHE GOMODCACHE` name",
    "checksum mismatch": "a downloaded module is not what it should be: check `go env GOPROXY` and try again",
    "dial tcp": NO_NETWORK,
    "no such host": NO_NETWORK,
    "connection refused": NO_NETWORK,
    "i/o timeout": NO_NETWORK,
    "tls: ": NO_NETWORK,
    "403 forbidden": NO_NETWORK,
    "module lookup disabled": NO_NETWORK,
}


@dataclass(frozen=True, slots=True)
class Go:
    """The `go` command of this machine; `find` has looked at its version."""

    path: str

    async def run(
        self, directory: Path, arguments: list[str], on_line: Callable[[str], None] | None = None
    ) -> str:
        """Its standard output. Every line of its standard error goes to `on_line` as it comes."""
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), self.path, *arguments),
            cwd=directory,
            env=_environment(),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
            limit=LINE_BYTES,
        )
        try:
            output, said = await asyncio.gather(_read(child), _follow(child, on_line))
            code = await child.wait()
        finally:
            await _end(child)
        if code:
            raise UserError(f"`go {arguments[0]}` failed: {explain(said or _json_error(output))}")
        return output


async def find() -> Go:
    path = shutil.which("go")
    if path is None:
        raise UserError(f"Go is not installed: install Go 1.24 or newer, {ELSEWHERE}")
    go = Go(path)
    said = await go.run(Path.home(), ["env", "GOVERSION"])
    version = parse_version(said.strip().removeprefix("go") + ".0")
    if version is not None and version < OLDEST:
        raise UserError(f"{path} is {said.strip()}: install Go 1.24 or newer, {ELSEWHERE}")
    return go


def explain(said: str) -> str:
    lowered = said.lower()
    known = next((words for token, words in FAILURES.items() if token in lowered), None)
    lines = [line for line in said.splitlines() if line.strip()]
    return known or (lines[-1].strip() if lines else "it did not say why")


def _json_error(output: str) -> str:
    """With -json a failure is told on standard output."""
    try:
        return str(json.loads(output)["Error"])
    except (ValueError, KeyError, TypeError):
        return output


def _environment() -> dict[str, str]:
    """The person's own proxy and tool chain settings stay; what decides the result is fixed."""
    fixed = {"GOFLAGS": "-mod=mod -buildvcs=false", "GOWORK": "off", "CGO_ENABLED": "0"}
    return os.environ | fixed


async def _read(child: Process) -> str:
    assert child.stdout
    return (await child.stdout.read()).decode(errors="replace")


async def _follow(child: Process, on_line: Callable[[str], None] | None) -> str:
    assert child.stderr
    lines = []
    async for raw in child.stderr:
        line = raw.decode(errors="replace").rstrip()
        lines.append(line)
        if on_line:
            on_line(line)
    return "\n".join(lines[-200:])


async def _end(child: Process) -> None:
    """Cancelled half-way: the compilers `go` has started go too."""
    if child.returncode is None:
        os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
