"""The documents' command blocks: where each stands, and what its mark says about it.

<!-- runs: shell -->       the tests run it
<!-- runs: cluster -->     the tests run it, with a cluster behind kubectl
<!-- shown: reason -->     it is only shown, and why it cannot run here
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
# A page that another test runs as a whole.
ELSEWHERE = {"docs/walkthrough-vitistack.md": "tests/dialects/vitistack/test_walkthrough.py"}
BLOCK = re.compile(
    r"(?:^[ ]*<!-- (?P<kind>runs|shown): (?P<words>[^\n]*) -->\n)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\]\((?!https?:|#)(?P<path>[^)#]+)")
MARK = re.compile(r"<!-- (?:runs|shown): ")
SHELLS = ("sh", "bash", "shell", "console")
PROGRAMS = (
    "berth",
    "clusterctl",
    "curl",
    "docker",
    "export",
    "helm",
    "kubectl",
    "make",
    "pip",
    "podman",
    "python",
)
COMMAND = re.compile(rf"^\s*(?:\$ )?(?:\S*/)?(?:{'|'.join(PROGRAMS)})[0-9.]*(?: |$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    kind: str = ""  # runs or shown; empty: it has no mark
    words: str = ""  # where it runs, or why it is only shown

    @property
    def place(self) -> str:
        return f"{name_of(self.page)}:{self.line}"

    @property
    def is_command(self) -> bool:
        return self.language in SHELLS or (not self.language and COMMAND.search(self.text) is not None)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("text")) + 1
        body = textwrap.dedent(found["text"])
        yield Block(page, line, found["language"], body, found["kind"] or "", found["words"] or "")


def running(page: Path, where: str) -> list[Block]:
    return [block for block in blocks(page) if (block.kind, block.words) == ("runs", where)]


def pages(where: str) -> list[Path]:
    return [page for page in PAGES if running(page, where)]
