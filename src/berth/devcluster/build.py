"""Builds one program from the Go module proxy: a go.mod of our own (gomod.py), `go list`, `go build`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.devcluster.gomod import go_mod, link_flags
from berth.devcluster.gotool import Go
from berth.devcluster.programs import Module, Program
from berth.devcluster.progress import Report, Step


@dataclass(frozen=True, slots=True)
class Build:
    """Everything happens in `workshop`, a directory the caller makes and removes."""

    go: Go
    workshop: Path
    report: Report

    async def program(self, program: Program) -> Path:
        """The finished file, still in the workshop."""
        await self.module(program.module)
        total = await self._resolve(program)
        output = self.workshop / program.name
        flags = ["-trimpath", "-ldflags", link_flags(program.module)]
        what = f"compiling {program.name} {program.module.version} ({program.takes} on two cores)"
        counter = self._counter(what, total, lambda line: not line.startswith("go: "))
        await self.go.run(
            self.workshop, ["build", "-v", *flags, "-o", str(output), program.package], on_line=counter
        )
        return output

    async def module(self, module: Module) -> None:
        """Writes the workshop's go.mod."""
        downloaded = await download(self.go, self.workshop, module)
        said = await self.go.run(self.workshop, ["mod", "edit", "-json", downloaded["GoMod"]])
        (self.workshop / "go.sum").unlink(missing_ok=True)
        (self.workshop / "go.mod").write_text(go_mod(module, json.loads(said)))

    async def _resolve(self, program: Program) -> int:
        """Downloads what the program needs; how many packages will be compiled."""
        what = f"downloading the modules of {program.name}"
        counter = self._counter(what, None, lambda line: line.startswith("go: downloading"))
        said = await self.go.run(self.workshop, ["list", "-deps", program.package], on_line=counter)
        return len(said.split())

    def _counter(self, what: str, total: int | None, counts: Callable[[str], bool]) -> Callable[[str], None]:
        seen = 0
        self.report(Step(what, 0, total))

        def on_line(line: str) -> None:
            nonlocal seen
            seen += counts(line)
            self.report(Step(what, seen, total))

        return on_line


async def download(go: Go, directory: Path, module: Module) -> dict[str, Any]:
    """`Dir`, `GoMod` and more, as `go mod download -json` says; in Go's own module cache."""
    said = await go.run(directory, ["mod", "download", "-json", f"{module.path}@{module.version}"])
    answer: dict[str, Any] = json.loads(said)
    return answer
