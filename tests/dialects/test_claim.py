"""The claim reconciler without a control plane: what is taken in memory is never forgotten there."""

from __future__ import annotations

from typing import Any, cast

import pytest

from berth.control.cache import Cache
from berth.control.events import Recorder
from berth.control.informers import Informer, WatchSpec
from berth.control.outcome import DONE, Outcome
from berth.dialects.claim import Ask, ClaimHandler, ClaimKind, ClaimReconciler, Plan, Serve
from berth.dialects.pool import Desk
from berth.errors import Unreachable
from berth.kube.client import Client
from berth.kube.meta import Ref
from berth.kube.resource import Resource
from berth.leasing.model import Claim, Pool
from berth.metrics import Metrics
from berth.net import Block, parse_block

CLAIM = Ref("Claim", "default", "c")
ONE, TWO = parse_block("10.0.0.0"), parse_block("10.0.0.1")


class Silent:
    """An API server that never answers."""

    async def patch(self, *arguments: Any, **options: Any) -> Any:
        raise Unreachable("no answer")


class Book:
    """One claim that wishes for one address of a pool of two."""

    kind = ClaimKind("metal3", "example.org/held", announces=False)

    def __init__(self) -> None:
        self.cache = Cache()
        watched = WatchSpec((Resource("example.org", "v1", "Claim", "claims"),))
        self.informer = Informer(watched, self.cache, cast(Client, Silent()))
        self.cache.put({"kind": "Claim", "metadata": {"name": "c", "namespace": "default", "uid": "u"}})
        self.desk = Desk(Pool("default/pool", (parse_block("10.0.0.0/31").range,)), lambda ref: None)
        self.pin: Block | None = ONE

    async def plan(self, claim: Any) -> Plan:
        return Serve((Ask(Claim("c", pin=self.pin), (self.desk,)),))

    def marks(self, claim: Any, blocks: tuple[Block, ...]) -> list[Any]:
        return []

    async def gone(self, ref: Ref) -> Outcome:
        return DONE

    @property
    def taken(self) -> tuple[Block, ...]:
        return self.desk.space.leases_of("c")


async def look(book: Book, life: ClaimReconciler) -> None:
    with pytest.raises(Unreachable):
        await life.reconcile(CLAIM)


def living(book: Book) -> ClaimReconciler:
    unheard = cast(Recorder, None)  # nothing is said before the claim is held
    return ClaimReconciler(cast(ClaimHandler, book), unheard, Metrics())


async def test_what_was_taken_for_a_wish_is_free_when_the_wish_is_another() -> None:
    """I2: the first pass ended before the claim was held; meanwhile the claim was edited."""
    book = Book()
    life = living(book)
    await look(book, life)
    assert book.taken == (ONE,)
    book.pin = TWO
    await look(book, life)
    assert book.taken == (TWO,)


async def test_also_when_the_new_wish_cannot_be_granted() -> None:
    """I2: it waits, and holds nothing meanwhile."""
    book = Book()
    life = living(book)
    await look(book, life)
    book.desk.adopt(TWO, "another")
    book.pin = TWO
    await look(book, life)
    assert book.taken == ()
    assert book.desk.space.is_free(ONE)


async def test_a_claim_that_went_leaves_nothing_taken() -> None:
    """I2."""
    book = Book()
    life = living(book)
    await look(book, life)
    book.cache.forget_deleted(book.cache.get("default", "c") or {})
    await life.reconcile(CLAIM)
    assert book.desk.space.is_free(ONE)
