"""Who owns a cluster's directory, and what becomes of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from berth.devcluster.commands import Ports
from berth.devcluster.directory import ABANDONED_SECONDS, PREFIX, open_home, remove_abandoned
from berth.errors import UserError


def test_a_temporary_directory_goes_when_it_is_closed() -> None:
    home = open_home(None)
    assert home.path.is_dir()
    home.close()

    assert not home.path.exists()


def test_logs_that_a_message_names_stay_but_nothing_secret_does() -> None:
    home = open_home(None)
    (home.logs / "etcd.log").write_text("x")
    (home.path / "kubeconfig").write_text("secret")
    home.close(keep_logs=True)

    assert (home.logs / "etcd.log").exists()
    assert not (home.path / "kubeconfig").exists()
    _make_old(home.path)
    remove_abandoned(home.path.parent)
    assert not home.path.exists()


def test_a_given_directory_stays_and_remembers_its_ports(tmp_path: Path) -> None:
    home = open_home(tmp_path)
    assert home.last_ports() is None
    home.remember(Ports(1, 2, 3, 4))
    home.close()

    again = open_home(tmp_path)
    assert again.last_ports() == [1, 2, 3, 4]
    again.close()


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    home = open_home(tmp_path)
    with pytest.raises(UserError, match=f"{tmp_path} is in use by a running dev cluster: stop it"):
        open_home(tmp_path)
    home.close()


def test_only_old_directories_that_nobody_holds_are_abandoned(tmp_path: Path) -> None:
    held, old, young = (tmp_path / f"{PREFIX}{name}" for name in ("held", "old", "young"))
    old.mkdir()
    young.mkdir()
    home = open_home(held)
    _make_old(held)
    _make_old(old)
    remove_abandoned(tmp_path)

    assert (held.exists(), old.exists(), young.exists()) == (True, False, True)
    home.close()


def _make_old(path: Path) -> None:
    then = time.time() - 2 * ABANDONED_SECONDS
    os.utime(path, (then, then))
