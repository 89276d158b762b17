"""Where the programs of the control plane are: looked for in this order, and made when they are nowhere.

    KUBEBUILDER_ASSETS → PATH → our cache → the official envtest archive → built from the Go module proxy

The first three are a look (`locate`); the last two write into the cache (`prepare`), one process at a time,
and each program appears there whole or not at all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from berth.devcluster import cache, programs
from berth.devcluster.cache import BinaryCache
from berth.devcluster.programs import CORE, Program
from berth.devcluster.progress import Report, silent
from berth.errors import UserError

ASSETS = "KUBEBUILDER_ASSETS"
VERSION_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Found:
    path: Path
    origin: str


@dataclass(frozen=True, slots=True)
class Places:
    """Where to look; read once from the environment."""

    assets: Path | None
    path: str
    cache: BinaryCache

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        assets = environ.get(ASSETS)
        return cls(Path(assets) if assets else None, environ.get("PATH", ""), cache.of(environ))

    def find(self, program: Program) -> Found | None:
        return self._in_assets(program) or self._on_path(program) or self._in_cache(program)

    def _in_assets(self, program: Program) -> Found | None:
        """Named by a person on purpose, so one that is too old is told, not passed over."""
        file = self.assets / program.name if self.assets else None
        if file is None or not file.exists():
            return None
        if not is_recent(program, file):
            oldest = ".".join(map(str, program.oldest))
            raise UserError(
                f"{file} is older than {oldest} or does not run: unset {ASSETS}, or name a newer one"
            )
        return Found(file, ASSETS)

    def _on_path(self, program: Program) -> Found | None:
        file = shutil.which(program.name, path=self.path)
        return Found(Path(file), "PATH") if file and is_recent(program, Path(file)) else None

    def _in_cache(self, program: Program) -> Found | None:
        file = self.cache.find(program)
        return Found(file, "cache") if file else None


@dataclass(frozen=True, slots=True)
class Binaries:
    """Program name → where it was found. What was not asked for at first is looked for when needed."""

    places: Places
    found: Mapping[str, Found]

    def __getitem__(self, name: str) -> Path:
        if name in self.found:
            return self.found[name].path
        return type(self).locate([name], self.places)[name]

    @classmethod
    def locate(cls, names: Iterable[str] = CORE, places: Places | None = None) -> Self:
        """Looks only. Quick, no network."""
        places = places or Places.of(os.environ)
        wanted = programs.known(names)
        found = {program.name: places.find(program) for program in wanted}
        missing = [name for name, where in found.items() if where is None]
        if missing:
            raise UserError(f"{_listed(missing)} not found on this machine: run `berth devcluster prepare`")
        return cls(places, {name: where for name, where in found.items() if where})

    @classmethod
    async def prepare(
        cls, names: Iterable[str] = CORE, report: Report = silent, places: Places | None = None
    ) -> Self:
        """Fetches or builds what is missing, then the same as `locate`."""
        places = places or Places.of(os.environ)
        wanted = programs.known(names)
        missing = [program for program in wanted if not places.find(program)]
        if missing:
            await cache.fill(places.cache, missing, report)
        return cls.locate([program.name for program in wanted], places)


def is_recent(program: Program, file: Path) -> bool:
    """Runs, and is at least as new as what we know to work."""
    environment = os.environ | {"CLUSTERCTL_DISABLE_VERSIONCHECK": "true"}
    try:
        said = subprocess.run(
            [file, *program.version_arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    version = programs.parse_version(said.stdout + said.stderr)
    return said.returncode == 0 and version is not None and version[:2] >= program.oldest


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
