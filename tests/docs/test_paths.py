"""Files that the documents name exist: a reader who follows a path finds the file."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import PAGES, ROOT, name_of

# As it stands in a sentence, a table or a drawing: `leasing/decide.py`, `dialects/X/admit.py`.
PATH = re.compile(r"(?<![\w./:*-])(?:[\w.-]+/)+\w+\.py\b")
NAME = re.compile(r"`(\w+\.py)`")
UNDER = ("src/berth", "tests", "")  # where a path may begin; tools/ and all else is written out
ANY_DIALECT = "dialects/X/"


def test_every_path_of_a_page_leads_to_a_file() -> None:
    missing = [
        f"{name_of(page)}: {path}"
        for page in PAGES
        for path in dict.fromkeys(PATH.findall(page.read_text()))
        if not leads_to_a_file(path)
    ]
    assert not missing, "\n".join(missing)


def leads_to_a_file(path: str) -> bool:
    pattern = path.replace(ANY_DIALECT, "dialects/*/").removeprefix("../")
    return any(any((ROOT / under).glob(pattern)) for under in UNDER)


def test_every_bare_name_of_a_page_is_a_files() -> None:
    """`wire.py` alone, where the sentence has said before in which folder."""
    names = {
        path.name for folder in ("src", "tests", "bench", "tools") for path in (ROOT / folder).rglob("*.py")
    }
    missing = [
        f"{name_of(page)}: {name}"
        for page in PAGES
        for name in dict.fromkeys(NAME.findall(page.read_text()))
        if name not in names
    ]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("folder", ["support", "faults"])
def test_the_page_of_a_folder_lists_all_its_files(folder: str) -> None:
    place = ROOT / "tests" / folder
    listed = re.findall(r"^\| `(\w+\.py)` \|", (place / "README.md").read_text(), re.MULTILINE)
    assert listed == sorted(path.name for path in place.glob("*.py"))
