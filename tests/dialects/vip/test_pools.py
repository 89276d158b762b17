"""Leases in memory, without a control plane: they end with the IP object, whoever was thought to have it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from berth.control.cache import Cache
from berth.control.informers import Informer, WatchSpec
from berth.dialects.vip import kinds, leases
from berth.dialects.vip.pools import OpenSegment, Register, Shelf
from berth.dialects.vip.translate import Owner, holder_of, ip_object
from berth.kube.client import Client
from berth.kube.meta import Ref
from berth.net import parse_block

ADDRESS = parse_block("10.0.0.1")
MINE, THEIRS = Owner("Service", "default", "mine", "u1"), Owner("Service", "default", "theirs", "u2")


class World:
    """One group, and what its operator knows."""

    def __init__(self) -> None:
        watched = WatchSpec((kinds.IP,), leases.indexes())
        self.cache = Cache(watched.indexes)
        self.groups = Shelf(kinds.GROUP_LABEL, lambda ref: None)
        book = leases.IPLedger(Informer(watched, self.cache, cast(Client, None)))
        self.register = Register(book, (self.groups,), lambda ref: None)
        self.register.shows = lambda holder, block: None
        self.register.touched = lambda lease: None
        self.cache.listen(self.register.record_changed)
        group = {"metadata": {"name": "g"}, "spec": {"segment": "10.0.0.0/24"}}
        self.group: OpenSegment = self.groups.open(group)

    def take_in_memory(self, owner: Owner) -> None:
        """As a pass does before its first write."""
        self.group.desk.space.take(ADDRESS, owner.key)

    def store(self, owner: Owner) -> dict[str, Any]:
        record = ip_object(ADDRESS, kinds.GROUP_LABEL, "g", owner)
        record["metadata"] |= {"uid": "i", "resourceVersion": "1"}
        self.cache.put(record)
        return record

    @property
    def used(self) -> int:
        return self.group.desk.space.usage().used


@pytest.fixture
def world() -> World:
    return World()


def test_what_was_taken_in_memory_alone_ends_when_another_is_seen_to_have_it(world: World) -> None:
    """I2: else the address would be lost to this operator when the other one has given it back."""
    world.take_in_memory(MINE)
    record = world.store(THEIRS)
    assert world.register.blocks_of(MINE.key) == ()
    assert world.register.blocks_of(THEIRS.key) == (ADDRESS,)
    world.cache.forget_deleted(record)
    assert world.used == 0


def test_who_goes_leaves_nothing_in_memory_of_an_address_that_is_another_s(world: World) -> None:
    record = world.store(THEIRS)
    world.group.desk.adopt(ADDRESS, MINE.key)
    world.register.forget(Ref("Service", "default", "mine"), MINE.key)
    world.cache.forget_deleted(record)
    assert world.used == 0


async def test_giving_back_leaves_the_record_of_another(world: World) -> None:
    record = world.store(THEIRS)
    world.group.desk.adopt(ADDRESS, MINE.key)
    await world.register.withdraw(MINE)
    assert world.register.blocks_of(MINE.key) == ()
    assert world.register.holder_of(ADDRESS) == holder_of(record)
