"""All rows of the bench. Those of the IPAM-API are beside its own tests (docs/reliability.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.faults import canary, deleting, killing, leading, plane, refusals, storms, watching
from tests.faults.row import Play, Row, Tally
from tests.faults.stage import Stage
from tests.faults.trade import Trade
from tests.faults.trades import TRADES

Deed = Callable[[Stage, Tally, int, Trade], Awaitable[None]]


def of(dialect: str, deed: Deed) -> Play:
    """The deed on one dialect."""

    async def play(stage: Stage, tally: Tally, tries: int) -> None:
        await deed(stage, tally, tries, TRADES[dialect]())

    return play


KILL = "operator killed before and after every write"
THREE = "three operators, no election, 200 claims at once"
# Short 0: the dialect has this row among its own tests; here it is for the long run only.
ROWS: tuple[Row, ...] = (
    Row("T02 metal3", KILL, 60, 2000, of("metal3", killing.every_write)),
    Row("T02 kubipam", KILL, 45, 1500, of("kubipam", killing.every_write)),
    Row("T02 vip", KILL, 45, 1500, of("vip", killing.every_write)),
    Row("T07 metal3", "leader stopped past its lease", 10, 500, of("metal3", leading.leader_stopped)),
    Row("T08 metal3", THREE, 0, 200, of("metal3", storms.several_operators)),
    Row("T08 kubipam", THREE, 0, 150, of("kubipam", storms.several_operators)),
    Row("T08 vip", THREE, 0, 150, of("vip", storms.several_operators)),
    Row("T09 metal3", "API server killed under load", 2, 100, of("metal3", plane.apiserver_killed)),
    Row("T09 vip", "API server killed under load", 1, 100, of("vip", plane.apiserver_killed)),
    Row("T10 metal3", "etcd killed under load", 2, 100, of("metal3", plane.etcd_killed)),
    Row("T10 kubipam", "etcd killed under load", 1, 100, of("kubipam", plane.etcd_killed)),
    Row("T11 metal3", "etcd restored from an older copy", 2, 100, of("metal3", plane.restored)),
    Row(
        "T12 metal3", "watches cut, half open, expired, empty", 26, 1000, of("metal3", watching.watch_faults)
    ),
    Row(
        "T12 kubipam",
        "watches cut, half open, expired, empty",
        24,
        1000,
        of("kubipam", watching.watch_faults),
    ),
    Row("T13 metal3", "half of all writes refused with 409", 1, 50, of("metal3", refusals.conflicts)),
    Row("T14 metal3", "429, 5xx, answers lost", 600, 30_000, of("metal3", refusals.lost_answers)),
    Row("T14 kubipam", "429, 5xx, answers lost", 600, 30_000, of("kubipam", refusals.lost_answers)),
    Row("T22 metal3", "deleted and made again at once", 17, 500, of("metal3", deleting.recreated)),
    Row("T22 kubipam", "deleted and made again at once", 16, 500, of("kubipam", deleting.recreated)),
    Row("T22 vip", "deleted and made again at once", 16, 500, of("vip", deleting.recreated)),
    Row("T22 metal3 held", "deleted while another holds it", 2, 500, of("metal3", deleting.held_by_another)),
    Row("T23 metal3", "deleted while no operator is there", 5, 250, of("metal3", deleting.while_away)),
    Row("T23 vip", "deleted while no operator is there", 5, 250, of("vip", deleting.while_away)),
    Row("T28 metal3", "a word of the run in logs and Events", 1, 10, of("metal3", canary.nothing_is_told)),
    Row("T28 vip", "a word of the run in logs and Events", 1, 10, of("vip", canary.nothing_is_told)),
    Row("T31 metal3", "pool edits under load", 10, 500, of("metal3", storms.pool_edits)),
    Row("T31 vip", "pool edits under load", 10, 500, of("vip", storms.pool_edits)),
    Row("T33 metal3", "200 claims before an empty pool", 1, 100, of("metal3", storms.line_at_an_empty_pool)),
)
