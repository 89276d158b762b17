"""docs/reliability.md has every row of the fault bench, with its fault, numbers and place, and no other."""

from __future__ import annotations

import re
from itertools import groupby

from tests.docs.pages import ROOT
from tests.faults.beside import BESIDE, words
from tests.faults.row import Row
from tests.faults.rows import ROWS

PAGE = (ROOT / "docs" / "reliability.md").read_text()
SHOWN = {"metal3": "Metal3", "kubipam": "kubipam", "vip": "VIP groups"}


def table(heading: str) -> list[str]:
    """The lines of the first table after this text, without its head."""
    lines = PAGE.partition(heading)[2].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| "))
    found = lines[first + 2 :]
    return found[: next(number for number, line in enumerate(found) if not line.startswith("| "))]


def number(row: Row) -> str:
    """T12 etcd of `T12 metal3 etcd`."""
    first, _, more = row.id.split(" ", 2) if row.id.count(" ") > 1 else (*row.id.split(" "), "")
    return f"{first} {more}".strip()


def line(name: str, shares: list[Row]) -> str:
    def share(row: Row) -> str:
        alone = len(shares) == 1 or not row.short
        return SHOWN[row.id.split(" ")[1]] + ("" if alone else f" {row.short}")

    short, long = sum(row.short for row in shares), sum(row.long for row in shares)
    dialects = ", ".join(map(share, shares))
    return f"| {name} | {shares[0].fault} | {dialects} | {short or '-'} | {long:,} |"


def test_every_row_on_a_control_plane_is_on_the_page_with_its_numbers() -> None:
    assert table("\n## Rows\n") == [line(name, list(rows)) for name, rows in groupby(ROWS, number)]


def test_every_row_beside_its_code_is_on_the_page_with_its_place() -> None:
    expected = [f"| {row.id} | {row.fault} | `{words(row.beside)[0]}` |" for row in BESIDE]
    assert table("\nBeside their own code") == expected


def test_short_numbers_that_the_page_tells_are_those_of_the_tests() -> None:
    """As their own first words have them."""
    told = PAGE.partition("\nShort, these are for ")[2].partition("\n")[0]
    found = re.findall(r"(T\d\d) (\d+)", told)
    assert [name for name, _ in found] == ["T35", "T36", "T38", "T45"]
    for name, times in found:
        (row,) = (one for one in BESIDE if one.id.startswith(name))
        assert f'"""{name}: {times} ' in (ROOT / words(row.beside)[0]).read_text()
