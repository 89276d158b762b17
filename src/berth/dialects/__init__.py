"""The API families, one shape. `DIALECTS` is the tuple the rest iterates over; nobody else names one."""

from __future__ import annotations

from berth.dialects.dialect import Dialect
from berth.dialects.kubipam import Kubipam
from berth.dialects.metal3 import Metal3
from berth.dialects.vip import Vip
from berth.dialects.vitistack import Vitistack

DIALECTS: tuple[Dialect, ...] = (Metal3(), Kubipam(), Vip(), Vitistack())

ALL_DIALECTS = tuple(dialect.name for dialect in DIALECTS)
NEED_NOTHING = tuple(dialect.name for dialect in DIALECTS if not dialect.needs_api)  # beside a cluster


def named(names: tuple[str, ...]) -> tuple[Dialect, ...]:
    """The dialects of these names, in the order of `DIALECTS`."""
    return tuple(dialect for dialect in DIALECTS if dialect.name in names)
