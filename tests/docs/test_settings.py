"""The page of all settings is what the settings say of themselves, and so is what the commands take."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from typer.main import get_command

from berth.cli.main import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "settings.md").read_text()


def test_the_page_is_written_out_of_the_settings() -> None:
    page = runpy.run_path(str(ROOT / "tools" / "settings_page.py"))["page"]
    assert page() == PAGE, "run: python tools/settings_page.py > docs/settings.md"


@pytest.mark.parametrize("name", ["operator", "api"])
def test_a_command_takes_what_its_page_lists_and_nothing_else(name: str) -> None:
    section = PAGE.partition(f"## `berth {name}`")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(--[a-z0-9-]+)` \| `([A-Z0-9_]+)`", section, re.MULTILINE)
    options = get_command(app).commands[name].params  # type: ignore[attr-defined]
    taken = [(one.opts[0], *_names(one.envvar)[:1]) for one in options if one.envvar]
    assert sorted(listed) == sorted(taken)


def _names(environment: str | list[str]) -> list[str]:
    return [environment] if isinstance(environment, str) else environment
