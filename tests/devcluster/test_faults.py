"""What went wrong, told from the log in one sentence with what to do."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from berth.devcluster.faults import StartFailed, explained
from berth.errors import UserError

FULL = '{"level":"fatal","msg":"failed","error":"preallocate 64000000: no space left on device"}'
BUSY = 'E1116 run.go:72] "command failed" err="listen tcp 127.0.0.1:6443: bind: address already in use"'


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        (FULL, "etcd ended: the disk is full: free 500 MB"),
        (BUSY, "etcd ended: a port is taken: stop what listens there"),
        ("panic: open /x: permission denied", "etcd ended: a file may not be read or written"),
        (
            'SIGXFSZ: file size limit exceeded\n{"level":"info","msg":"bye"}',
            "etcd ended: a file grew past what this shell allows",
        ),
    ],
)
def test_known_causes_come_with_what_to_do(tmp_path: Path, log: str, sentence: str) -> None:
    file = tmp_path / "etcd.log"
    file.write_text(log)
    failure = StartFailed.of("etcd", file, "ended")

    assert str(failure).startswith(sentence)
    assert str(file) in str(failure)
    assert "\n" not in str(failure)


def test_unknown_causes_quote_the_last_loud_line(tmp_path: Path) -> None:
    file = tmp_path / "etcd.log"
    file.write_text('{"level":"fatal","msg":"cannot","error":"moon"}\n{"level":"info","msg":"closing"}\n')

    assert 'its log ends with "cannot: moon"' in str(StartFailed.of("etcd", file, "ended"))


def test_a_lost_race_for_a_port_is_told_from_the_rest(tmp_path: Path) -> None:
    (tmp_path / "busy.log").write_text(BUSY)
    (tmp_path / "full.log").write_text(FULL)

    assert StartFailed.of("etcd", tmp_path / "busy.log", "ended").busy
    assert not StartFailed.of("etcd", tmp_path / "full.log", "ended").busy


def test_a_log_that_is_not_there_is_no_second_failure(tmp_path: Path) -> None:
    assert "nothing" in str(StartFailed.of("etcd", tmp_path / "absent.log", "ended"))


def test_our_own_file_operations_get_the_same_sentences() -> None:
    with (
        pytest.raises(UserError, match=r"^cannot write /x: the disk is full: free 500 MB"),
        explained("/y"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device", "/x")
