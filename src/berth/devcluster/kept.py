"""Clusters with a name, kept in the background until they are stopped.

Each has a directory under `$XDG_STATE_HOME/berth/devclusters/<name>` and a keeper process (keep.py) that owns
it. Whether it runs is told by the lock its keeper holds, so neither a reboot nor a kill leaves a false entry.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from berth.devcluster.cluster import ClusterOptions
from berth.devcluster.directory import LOCK, READY
from berth.devcluster.faults import explained
from berth.devcluster.files import holder
from berth.errors import UserError

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")
KEEPER_LOG = "keeper.log"
STOP_SECONDS = 15.0
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class KeptCluster:
    """One named cluster, running or not."""

    directory: Path

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def pid(self) -> int | None:
        return holder(self.directory / LOCK)

    @property
    def ready(self) -> bool:
        return self.pid is not None and (self.directory / READY).exists()

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    def start(self, options: ClusterOptions, controllers: str = "") -> None:
        """Returns when it serves. What fails leaves the log but no process."""
        if self.pid is not None:
            raise UserError(
                f"a dev cluster named {self.name} is running: `berth devcluster stop {self.name}` first, "
                "or choose another name"
            )
        with explained(str(self.directory)):
            self.remove()
            self.directory.mkdir(mode=0o700, parents=True)
            keeper = self._spawn(options, controllers)
        try:
            self._await_ready(keeper)
        except BaseException:
            keeper.terminate()
            keeper.wait(STOP_SECONDS)
            raise
        finally:
            if keeper.stdout:
                keeper.stdout.close()

    def _spawn(self, options: ClusterOptions, controllers: str) -> subprocess.Popen[str]:
        durable = "durable" if options.durable else "quick"
        arguments = [str(self.directory), str(options.port), durable, controllers]
        with (self.directory / KEEPER_LOG).open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "berth.devcluster.keep", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def _await_ready(self, keeper: subprocess.Popen[str]) -> None:
        """The keeper ends each of its waits by itself, so this one needs no end of its own."""
        assert keeper.stdout
        said = keeper.stdout.read().strip()
        if said != READY:
            raise UserError(said or f"the dev cluster ended: see {self.directory / KEEPER_LOG}")

    def stop(self) -> None:
        """Ends the keeper, which ends the rest; the directory goes too. What has stopped is only removed."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
            if not self._gone():
                os.kill(pid, signal.SIGKILL)
                self._gone()
        self.remove()

    def _gone(self) -> bool:
        deadline = time.monotonic() + STOP_SECONDS
        while self.pid is not None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return self.pid is None

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class KeptClusters:
    """All named clusters of one person."""

    directory: Path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> KeptClusters:
        base = environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return cls(Path(base) / "berth" / "devclusters")

    def named(self, name: str) -> KeptCluster:
        if not NAME.fullmatch(name):
            raise UserError(
                f"{name!r} is no name for a dev cluster: small letters, digits and dashes, up to 42"
            )
        return KeptCluster(self.directory / name)

    def running(self, name: str) -> KeptCluster:
        kept = self.named(name)
        if not kept.ready:
            raise UserError(
                f"no dev cluster named {name} is running: `berth devcluster list` shows which are"
            )
        return kept

    def all(self) -> list[KeptCluster]:
        if not self.directory.exists():
            return []
        return [KeptCluster(path) for path in sorted(self.directory.iterdir()) if path.is_dir()]
