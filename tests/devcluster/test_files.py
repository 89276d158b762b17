"""Private files, and locks that vanish with their holder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from berth.devcluster.files import Lock, holder, write_private

HOLD = (
    "import sys; from pathlib import Path; from berth.devcluster.files import Lock;"
    "print(Lock(Path(sys.argv[1])).take(), flush=True); sys.stdin.read()"
)


def test_private_files_are_for_their_owner_only(tmp_path: Path) -> None:
    write_private(tmp_path / "key", b"x")

    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_lock_names_its_holder_and_is_free_when_released(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    assert holder(lock.path) is None
    assert lock.take()
    assert holder(lock.path) == os.getpid()
    assert not Lock(lock.path).take()

    lock.release()
    assert holder(lock.path) is None


def test_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == b"True\n"
        assert holder(path) == child.pid
        child.kill()
        child.wait()

    assert holder(path) is None
    assert Lock(path).take()
