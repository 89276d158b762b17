"""The map tells the truth: every file of a walk in docs/flow.md is there, and those before it lead to it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "berth"
PAGE = (ROOT / "docs" / "flow.md").read_text()


def walks() -> dict[str, list[str]]:
    rows = re.findall(r"^\| (metal3|kubipam|vip) \|(.*)$", PAGE, re.MULTILINE)
    return {dialect: re.findall(r"`([\w/]+\.py)`", row) for dialect, row in rows}


def imported(path: str) -> set[str]:
    """Files of ours that a file imports, in any of the ways there are."""
    found = set()
    for node in ast.walk(ast.parse((SOURCE / path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("berth"):
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            found |= {name.removeprefix("berth.").replace(".", "/") + ".py" for name in names}
    return found


@pytest.mark.parametrize("dialect", ["metal3", "kubipam", "vip"])
def test_every_file_of_a_walk_is_reached_from_one_before(dialect: str) -> None:
    """By an import, in either direction: a listener is handed to those who call it."""
    walk = walks()[dialect]
    assert len(walk) > 15
    for at, path in enumerate(walk[1:], 1):
        before = walk[:at]
        reaches = any(path in imported(one) for one in before)
        is_told = any(one in imported(path) for one in before)
        assert reaches or is_told, f"{path} has nothing to do with those before it"


@pytest.mark.parametrize("dialect", ["metal3", "kubipam", "vip"])
def test_no_walk_is_longer_than_it_says(dialect: str) -> None:
    """What a dialect's claims.py and leases.py import of the dialect is on the walk, or a word that is looked
    up on the way."""
    walk, folder = set(walks()[dialect]), f"dialects/{dialect}/"
    beside = {"kinds.py", "claim_api.py", "memory.py", "settings.py"}
    for path in (f"{folder}claims.py", f"{folder}leases.py"):
        own = {one for one in imported(path) if one.startswith(folder) and (SOURCE / one).is_file()}
        assert {one for one in own - walk if one.removeprefix(folder) not in beside} == set()
