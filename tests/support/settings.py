"""The operator's settings by flat words, as its flags have them: `vip_classes`, `api_url`, `namespace`."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from berth.dialects import DIALECTS
from berth.settings import Settings


def settings_of(base: Settings | None = None, **told: Any) -> Settings:
    """Each word is a field of Settings; or of a dialect's, there with the dialect's name before it or not."""
    chosen = base or Settings()
    general = {one.name for one in fields(Settings)}
    parts = []
    for dialect in DIALECTS:
        part = chosen.of(dialect.settings)
        for one in fields(dialect.settings):
            for word in (f"{dialect.name}_{one.name}", one.name):
                if word in told and word not in general:
                    part = replace(part, **{one.name: told.pop(word)})
        parts.append(part)
    return replace(chosen, parts=tuple(parts), **told)
