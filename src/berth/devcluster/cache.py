"""Our cache of programs, `$XDG_CACHE_HOME/berth/controlplane/<version of Kubernetes>`: survives, is filled by
one process at a time, and holds whole files only.

    etcd  kube-apiserver  kubectl  …      .versions/<name>   the module version a program was built from
    .lock   held while someone fills it   .making-*          half-made things, removed by the next who fills
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from berth.devcluster import archive, gotool
from berth.devcluster.build import Build
from berth.devcluster.faults import explained
from berth.devcluster.files import Lock
from berth.devcluster.programs import CORE, KUBERNETES, Program
from berth.devcluster.progress import Report, Step

WAIT_SECONDS = 0.2
MAKING = ".making-"


@dataclass(frozen=True, slots=True)
class BinaryCache:
    directory: Path
    archive: archive.ArchiveSource = archive.OFF

    def find(self, program: Program) -> Path | None:
        file = self.directory / program.name
        return file if os.access(file, os.X_OK) and self._is_current(program) else None

    def _is_current(self, program: Program) -> bool:
        note = self._note(program)
        return not note.exists() or note.read_text().strip() == program.module.version

    def _note(self, program: Program) -> Path:
        return self.directory / ".versions" / program.name

    def place(self, program: Program, made: Path) -> None:
        """An old file never stands beside a new note: it would pass for current for ever."""
        (self.directory / program.name).unlink(missing_ok=True)
        self._note(program).parent.mkdir(exist_ok=True)
        self._note(program).write_text(program.module.version + "\n")
        made.chmod(0o755)
        made.replace(self.directory / program.name)


def of(environ: Mapping[str, str]) -> BinaryCache:
    base = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(base) / "berth" / "controlplane" / KUBERNETES.version
    return BinaryCache(directory, archive.source(environ))


async def fill(cache: BinaryCache, programs: list[Program], report: Report) -> None:
    """Each program as soon as it is done, so that an interrupted run has not worked in vain."""
    with explained(str(cache.directory)):
        async with workshop(cache, report) as directory:
            await _from_archive(cache, directory, programs, report)
            missing = [program for program in programs if not cache.find(program)]
            if missing:
                build = Build(await gotool.find(), directory, report)
                for program in missing:
                    cache.place(program, await build.program(program))


async def _from_archive(cache: BinaryCache, directory: Path, programs: list[Program], report: Report) -> None:
    wanted = {
        program.name: program for program in programs if program.name in CORE and not cache.find(program)
    }
    if wanted:
        for made in await archive.fetch(cache.archive, directory, wanted, report):
            cache.place(wanted[made.name], made)


@asynccontextmanager
async def workshop(cache: BinaryCache, report: Report) -> AsyncIterator[Path]:
    """A directory on the cache's own disk, so that placing is one rename; nobody else fills meanwhile."""
    cache.directory.mkdir(parents=True, exist_ok=True)
    lock = Lock(cache.directory / ".lock")
    while not lock.take():
        report(Step("waiting for another process that is preparing the same"))
        await asyncio.sleep(WAIT_SECONDS)
    try:
        for left in cache.directory.glob(f"{MAKING}*"):
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=cache.directory, prefix=MAKING) as directory:
            yield Path(directory)
    finally:
        lock.release()
