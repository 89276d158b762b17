"""acquire(): memory proposes, the ledger decides, and memory is right again whatever happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from berth.errors import Taken, Unreachable
from berth.leasing import SOMEONE, Claim, Grant, Keep, Pool, Reason, Refusal, Space, Strategy, acquire
from berth.net import Block, parse_block, parse_range


class Book:
    """A ledger in memory that several processes could share; each write lets others run first."""

    def __init__(self, *, names_holders: bool = True) -> None:
        self.rows: dict[Block, str] = {}
        self.names_holders = names_holders
        self.fault: BaseException | None = None

    async def commit(self, claim: Claim, grant: Grant) -> None:
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        other = self.rows.setdefault(grant.block, claim.holder)
        if other != claim.holder:
            raise Taken(grant.block, other if self.names_holders else None)

    async def withdraw(self, claim: Claim, grant: Grant) -> None:
        self.rows.pop(grant.block, None)


def space(strategy: Strategy = Strategy.FIRST, ranges: str = "10.0.0.0/30") -> Space:
    return Space(Pool("p", (parse_range(ranges),), strategy=strategy))


async def test_a_grant_is_committed_and_held_in_memory() -> None:
    mine, book = space(), Book()
    decision = await acquire(Claim("me"), [mine], book)
    assert isinstance(decision, Grant)
    assert book.rows == {decision.block: "me"}
    assert mine.leases_of("me") == (decision.block,)
    assert await acquire(Claim("me"), [mine], book) == Keep(mine, decision.block)


@pytest.mark.parametrize("names_holders", [True, False])
async def test_a_block_the_ledger_refuses_is_learnt_and_the_next_one_taken(names_holders: bool) -> None:
    mine, book = space(), Book(names_holders=names_holders)
    book.rows = {parse_block("10.0.0.0"): "them", parse_block("10.0.0.1"): "them"}
    decision = await acquire(Claim("me"), [mine], book)
    assert isinstance(decision, Grant)
    assert decision.block.address == "10.0.0.2"
    assert mine.holder_of(parse_block("10.0.0.1")) == ("them" if names_holders else SOMEONE)
    assert mine.leases_of("me") == (decision.block,)


async def test_a_pin_the_ledger_refuses_is_refused_with_its_reason() -> None:
    mine, book = space(), Book()
    book.rows = {parse_block("10.0.0.3"): "them"}
    decision = await acquire(Claim("me", pin=parse_block("10.0.0.3")), [mine], book)
    assert isinstance(decision, Refusal)
    assert (decision.reason, decision.holder) == (Reason.PIN_TAKEN, "them")


async def test_when_the_ledger_has_everything_the_pool_is_exhausted() -> None:
    mine, book = space(), Book()
    book.rows = {parse_block(f"10.0.0.{number}"): "them" for number in range(4)}
    decision = await acquire(Claim("me"), [mine], book)
    assert isinstance(decision, Refusal)
    assert decision.reason is Reason.POOL_EXHAUSTED


@pytest.mark.parametrize("fault", [Unreachable("no answer"), asyncio.CancelledError(), ValueError("broken")])
async def test_after_any_other_error_memory_is_as_before_and_the_error_goes_on(fault: BaseException) -> None:
    mine, book = space(), Book()
    book.fault = fault
    before = mine.usage()
    with pytest.raises(type(fault)):
        await acquire(Claim("me"), [mine], book)
    assert mine.usage() == before
    assert mine.leases_of("me") == ()


@pytest.mark.parametrize("strategy", list(Strategy))
async def test_many_claimants_of_two_processes_share_few_addresses_without_a_double(
    strategy: Strategy,
) -> None:
    """Each process has its own memory and learns of the other's leases only from the ledger."""
    book = Book()
    processes = [space(strategy, "10.0.0.0/27"), space(strategy, "10.0.0.0/27")]
    claims = [(Claim(f"claim {number}"), processes[number % 2]) for number in range(40)]
    decisions = await asyncio.gather(*(acquire(claim, [mine], book, Random(4)) for claim, mine in claims))
    kinds = Counter(type(decision) for decision in decisions)
    assert kinds == {Grant: 32, Refusal: 8}
    granted = [decision.block for decision in decisions if isinstance(decision, Grant)]
    assert len(set(granted)) == 32
    assert len(book.rows) == 32
    for mine in processes:
        assert dict(mine.leases()).items() <= book.rows.items()
