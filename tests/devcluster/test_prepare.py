"""`tests/prepare`, the first thing `make test` runs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "prepare"


def _run(path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = None if path is None else {"PATH": path}
    shell = shutil.which("sh") or "/bin/sh"
    return subprocess.run(
        [shell, SCRIPT], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_it_is_silent_when_everything_is_there() -> None:
    done = _run()

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_cannot_be_installed_is_named_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "id").symlink_to(shutil.which("id") or "/usr/bin/id")
    done = _run(str(tmp_path))

    assert done.returncode == 1
    assert done.stderr.startswith("tests/prepare: the tests need the command `go`: install it")
    assert done.stderr.count("\n") == 1
