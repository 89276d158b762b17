"""The directory of one dev cluster, and who owns it.

    owner.lock   held (flock) by the living owner      ports.json   the ports of the last start
    kubeconfig   mode 0600                             pki/  etcd/  logs/

A temporary one is removed at stop. An owner that was killed cannot do that: the next start of any
cluster removes the temporary directories whose lock nobody holds.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from dataclasses import astuple, dataclass
from pathlib import Path

from berth.devcluster.commands import Ports
from berth.devcluster.files import Lock, holder
from berth.errors import UserError

LOCK = "owner.lock"
# There while a kept cluster serves (see keep.py).
READY = "ready"
PREFIX = "berth-devcluster-"
# Younger ones may belong to a process that has not come to take its lock yet.
ABANDONED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Home:
    path: Path
    lock: Lock
    temporary: bool

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def last_ports(self) -> list[int] | None:
        try:
            numbers = json.loads((self.path / "ports.json").read_text())
        except (OSError, ValueError):
            return None
        return numbers if isinstance(numbers, list) and len(numbers) == 4 else None

    def remember(self, ports: Ports) -> None:
        (self.path / "ports.json").write_text(json.dumps(astuple(ports)))

    def close(self, *, keep_logs: bool = False) -> None:
        """Logs that an error message names stay for a while: until the next start finds them abandoned."""
        if self.temporary and keep_logs:
            for part in ("etcd", "pki", "kubeconfig"):
                _remove(self.path / part)
        elif self.temporary:
            _remove(self.path)
        self.lock.release()


def _remove(path: Path) -> None:
    """As much as there is of it: a kubectl that is just ending may still write its cache."""
    path.unlink(missing_ok=True) if path.is_file() else shutil.rmtree(path, ignore_errors=True)


def open_home(given: Path | None) -> Home:
    if given is None:
        remove_abandoned(Path(tempfile.gettempdir()))
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
    else:
        path = given.absolute()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = Lock(path / LOCK)
    if not lock.take():
        raise UserError(f"{path} is in use by a running dev cluster: stop it, or name another directory")
    (path / "logs").mkdir(exist_ok=True)
    return Home(path, lock, temporary=given is None)


def remove_abandoned(base: Path) -> None:
    for path in base.glob(f"{PREFIX}*"):
        if _is_abandoned(path):
            _remove(path)


def _is_abandoned(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > ABANDONED_SECONDS and holder(path / LOCK) is None
    except OSError:
        return False  # another user's, or gone by now
