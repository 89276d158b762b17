"""A token in a file: a new one counts at once, and while there is none the last one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from berth.central.tokens import RotatedToken


@pytest.mark.parametrize("raw", [None, b"", b" \n", b"\xff", b"half\n\nof it", b"a\x00b", "æ".encode()])
def test_while_the_file_is_no_good_the_last_token_is_used(tmp_path: Path, raw: bytes | None) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    token = RotatedToken(path)
    assert token.read() == "first"
    path.write_text("second\n")
    assert token.read() == "second"
    path.unlink()
    if raw is not None:
        path.write_bytes(raw)
    assert token.read() == "second"
    path.write_text("third")
    assert token.read() == "third"


@pytest.mark.parametrize("raw", [b"", b"canary\x01", b"canary\ncanary"])
def test_a_file_that_never_had_one_is_an_error_without_its_content(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "token").write_bytes(raw)
    with pytest.raises(ValueError, match="the file is") as raised:
        RotatedToken(tmp_path / "token").read()
    assert "canary" not in str(raised.value)
