"""All rows of the bench. Those of the IPAM-API are beside its own tests (docs/reliability.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.faults import (
    canary,
    chaos,
    clocks,
    deleting,
    killing,
    leading,
    once,
    plane,
    refusals,
    restoring,
    storms,
    versions,
    watching,
)
from tests.faults.row import Play, Row, Tally
from tests.faults.stage import Stage
from tests.faults.trade import Trade
from tests.faults.trades import TRADES

Deed = Callable[[Stage, Tally, int, Trade], Awaitable[None]]
Share = tuple[str, int, int]  # dialect, its part of the short number, of the long one


def of(dialect: str, deed: Deed) -> Play:
    """The deed on one dialect."""

    async def play(stage: Stage | None, tally: Tally, tries: int) -> None:
        assert stage is not None, "these rows play on a control plane"
        await deed(stage, tally, tries, TRADES[dialect]())

    return play


def rows(
    id: str, fault: str, deed: Deed, *shares: Share, ours: bool = False, time: int = 1
) -> tuple[Row, ...]:
    """One row of the matrix, shared out among dialects. Short 0: for the long run only."""
    number, _, more = id.partition(" ")
    return tuple(
        Row(f"{number} {dialect} {more}".strip(), fault, short, long, of(dialect, deed), ours, share=time)
        for dialect, short, long in shares
    )


M, K, V, C = "metal3", "kubipam", "vip", "cilium"
KILL = "operator killed before and after every write"
MANY = "three operators, no election, 200 claims at once"
SERVER, ETCD = "API server killed under load", "etcd killed under load"
WATCHES = "watches cut, half open, expired, empty, ended in a line"
CONFLICTS, ONCE = "half of all writes refused with 409", "each write refused, cut or unheard once"
AGAIN, AWAY = "deleted and made again", "deleted while no operator is there"
FILES = "all gone, and brought back from files"
CHAOS = "all faults at random"
ROWS: tuple[Row, ...] = (
    *rows("T02", KILL, killing.every_write, (M, 60, 2000), (K, 45, 1500), (V, 45, 1500)),
    *rows("T07", "leader stopped past its lease", leading.leader_stopped, (M, 10, 500), ours=True),
    *rows("T08", MANY, storms.several_operators, (M, 7, 200), (K, 7, 150), (V, 6, 150)),
    *rows("T09", SERVER, plane.apiserver_killed, (M, 1, 80), (K, 1, 60), (V, 1, 60)),
    *rows("T10", ETCD, plane.etcd_killed, (M, 1, 80), (K, 1, 60), (V, 1, 60)),
    *rows("T11", "etcd restored from an older copy", plane.restored, (M, 2, 100)),
    *rows("T12", WATCHES, watching.watch_faults, (M, 18, 700), (K, 16, 700), (V, 16, 600)),
    *rows("T12 etcd", "etcd compacted, 410", watching.compacted_for_good, (M, 1, 50), (K, 1, 50)),
    *rows("T13", CONFLICTS, refusals.conflicts, (M, 1, 50), (K, 0, 50), (V, 0, 50)),
    *rows("T13 once", ONCE, once.each_write, (M, 12, 500), (K, 12, 500), (V, 12, 500)),
    *rows(
        "T14",
        "429, 5xx, answers lost",
        refusals.lost_answers,
        (M, 600, 30_000),
        (K, 600, 30_000),
        (V, 600, 30_000),
    ),
    *rows("T17", "clocks of two operators apart", clocks.apart, (M, 2, 100), ours=True),
    *rows("T22", AGAIN, deleting.recreated, (M, 17, 500), (K, 16, 500), (V, 16, 500)),
    *rows("T22 held", "deleted while another holds it", deleting.held_by_another, (M, 2, 500)),
    *rows(
        "T22 late", "made again, one operator hears late", deleting.recreated_beside_a_late_one, (M, 10, 500)
    ),
    *rows("T23", AWAY, deleting.while_away, (M, 4, 200), (K, 2, 100), (V, 4, 200)),
    *rows("T28", "a word of the run anywhere", canary.nothing_is_told, (M, 1, 10), (V, 1, 10)),
    *rows(
        "T30",
        "an older version beside this one",
        versions.side_by_side,
        (M, 1, 20),
        (K, 0, 15),
        (V, 0, 15),
        ours=True,
    ),
    *rows("T31", "pool edits under load", storms.pool_edits, (M, 10, 500), (V, 10, 500)),
    # Long enough to see whether memory grows.
    *rows("T32", CHAOS, chaos.everything, (M, 0, 10_000), (K, 0, 10_000), (V, 0, 10_000), ours=True, time=6),
    *rows("T33", "200 claims before an empty pool", storms.line_at_an_empty_pool, (M, 1, 100)),
    *rows("T37", FILES, restoring.from_files, (M, 2, 50), (K, 2, 50), (V, 2, 50)),
)
# What the LB IPAM of Cilium is asked: what VIP groups are, but for T08 and T14, which want several at work,
# and it elects one; T28 and T30, about our logs and our past; T31, which takes addresses in use out of a
# pool, and its manual says that they change.
OTHERS: tuple[Row, ...] = (
    *rows("T02", KILL, killing.every_write, (C, 0, 1500)),
    *rows("T09", SERVER, plane.apiserver_killed, (C, 0, 60)),
    *rows("T10", ETCD, plane.etcd_killed, (C, 0, 60)),
    *rows("T12", WATCHES, watching.watch_faults, (C, 0, 600)),
    *rows("T13", CONFLICTS, refusals.conflicts, (C, 0, 50)),
    *rows("T13 once", ONCE, once.each_write, (C, 0, 500)),
    *rows("T22", AGAIN, deleting.recreated, (C, 0, 500)),
    *rows("T23", AWAY, deleting.while_away, (C, 0, 200)),
)
