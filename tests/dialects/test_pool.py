"""Who waits at a pool's desk, and who is woken when something comes free."""

from __future__ import annotations

from typing import Any

from berth.dialects.pool import Desk
from berth.kube.meta import Ref
from berth.leasing.model import Pool
from berth.net import Block, parse_block

ONE, TWO = parse_block("10.0.0.0"), parse_block("10.0.0.1")
FIRST, SECOND = Ref("IPClaim", "default", "first"), Ref("IPClaim", "default", "second")


def full(*blocks: Block, subnet: str = "10.0.0.0/31") -> tuple[Desk, list[Ref]]:
    """A desk with nothing left, and who was woken at it."""
    woken: list[Ref] = []
    desk = Desk(Pool("default/pool", (parse_block(subnet).range,)), woken.append)
    for block in blocks or (ONE, TWO):
        desk.adopt(block, str(block))
    return desk, woken


def asked(ref: Ref, second: int = 0) -> dict[str, Any]:
    return {"metadata": {"name": ref.name, "creationTimestamp": f"2026-01-01T00:00:{second:02}Z"}}


def test_the_oldest_is_woken_and_the_next_when_it_leaves_with_room_to_spare() -> None:
    desk, woken = full()
    desk.wait(asked(SECOND, 2), SECOND, None)
    desk.wait(asked(FIRST, 1), FIRST, None)
    desk.free(ONE, str(ONE))
    assert woken == [FIRST]
    desk.leave(FIRST)
    assert woken == [FIRST, SECOND]


def test_who_insists_on_an_address_by_now_holds_up_nobody() -> None:
    """M-100: it waited for any address, then was annotated with one that is taken for good."""
    desk, woken = full()
    desk.wait(asked(FIRST, 1), FIRST, None)
    desk.wait(asked(SECOND, 2), SECOND, None)
    desk.wait(asked(FIRST, 1), FIRST, ONE)
    assert woken == []
    desk.free(TWO, str(TWO))
    assert woken == [SECOND]
    desk.free(ONE, str(ONE))
    assert woken == [SECOND, FIRST, SECOND]


def test_what_came_free_meanwhile_is_for_the_next() -> None:
    """The address was offered to the head of the line, which no longer takes any."""
    desk, woken = full()
    desk.wait(asked(FIRST, 1), FIRST, None)
    desk.wait(asked(SECOND, 2), SECOND, None)
    desk.free(TWO, str(TWO))
    desk.wait(asked(FIRST, 1), FIRST, ONE)
    assert woken == [FIRST, SECOND]


def test_who_asks_for_another_length_stands_in_another_line() -> None:
    low, high = parse_block("10.0.0.0/31"), parse_block("10.0.0.2/31")
    desk, woken = full(low, high, subnet="10.0.0.0/30")
    desk.wait(asked(FIRST), FIRST, None, 30)
    desk.wait(asked(FIRST), FIRST, None, 31)
    desk.free(low, str(low))
    assert woken == [FIRST]
    desk.leave(FIRST)
    assert not desk.waits(FIRST)
