"""The tutorial shows code that runs: each of its blocks stands in the toy dialect as it is."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_block_of_the_tutorial_is_the_toys_own() -> None:
    page = (ROOT / "docs" / "writing-a-dialect.md").read_text()
    source = (ROOT / "tests" / "dialects" / "toy" / "__init__.py").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 4
    assert [block for block in blocks if block not in source] == []


def test_the_tuple_it_names_is_the_one_there_is() -> None:
    page = (ROOT / "docs" / "writing-a-dialect.md").read_text()
    [line] = re.findall(r"^DIALECTS: .*$", page, re.MULTILINE)
    assert line in (ROOT / "src" / "berth" / "dialects" / "__init__.py").read_text()
