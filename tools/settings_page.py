"""docs/settings.md, out of the settings themselves: python tools/settings_page.py > docs/settings.md"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from berth.central.settings import ApiSettings
from berth.dialects import DIALECTS
from berth.settings import Option, Settings, options

HEAD = """# Settings

Every flag of `berth operator` and `berth api`, with its environment name and its default; a flag comes
before the environment. Written by `make manifests` out of the settings' own words, which `--help` shows too.
"""
DIALECTS_ROW = (
    "| `--dialects` | `BERTH_DIALECTS` | `{usual}` | Comma list of the dialects to serve, out of {every}. |"
)


def page() -> str:
    every = [dialect.name for dialect in DIALECTS]
    usual = [dialect.name for dialect in DIALECTS if not dialect.needs_api]
    choice = DIALECTS_ROW.format(usual=",".join(usual), every=", ".join(every))
    operator = [("## `berth operator`", [*_rows(Settings), choice])]
    own = [(f"### {dialect.name}", _rows(dialect.settings)) for dialect in DIALECTS]
    api = [("## `berth api`", _rows(ApiSettings))]
    return "\n".join([HEAD, *(_table(title, rows) for title, rows in (*operator, *own, *api) if rows)])


def _rows(kind: type) -> list[str]:
    return [_row(option) for option, _ in options(kind)]


def _row(option: Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.environment)
    flag = option.flag.partition("/")[0]
    return f"| `{flag}` | {names} | {_default(option.default)} | {option.help.replace('|', '/')} |"


def _default(value: Any) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "off" if value is False else f"`{value}`"


def _table(title: str, rows: Iterable[str]) -> str:
    return "\n".join((title, "", "| flag | environment | default | |", "|---|---|---|---|", *rows, ""))


if __name__ == "__main__":
    sys.stdout.write(page())
