"""The ledger of one range: one write for all who wait, and what does not fit is refused alone."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from tests.dialects.kubipam.simulation import NAMESPACE, Link, Server, on_fake_time
from tests.support import virtual

from berth.control.cache import Cache
from berth.dialects.claim import NotStored
from berth.dialects.kubipam.allocations import Draft, Page
from berth.dialects.kubipam.kinds import RANGE
from berth.dialects.kubipam.leases import GrantLost, Pruned, RangeLedger
from berth.dialects.kubipam.requests import INDEXES, Requests
from berth.errors import Conflict
from berth.net import Block, RangeSet, parse_block


@pytest.fixture(autouse=True)
def fake_time(monkeypatch: pytest.MonkeyPatch) -> None:
    on_fake_time(monkeypatch)


class Scene:
    """A range on the server, its ledger, and a reader who does not listen."""

    def __init__(self) -> None:
        self.server, self.cache = Server(), Cache()
        self.server.create(RANGE, "p", {"ranges": ["10.0.0.0/24"]})
        link: Any = Link(self.server, Random(0))
        self.ledger = RangeLedger(link, self.cache, Requests(Cache(INDEXES)), self)
        self.look()
        self.ledger.open(self.server.find(RANGE, "p"))

    def look(self) -> None:
        self.cache.replace(self.server.all(RANGE), str(self.server.revision))

    async def begin(self) -> None:
        await self.ledger.change(lambda draft: draft.adopt(RangeSet()), self.ledger.version, begins=True)

    async def grant(self, uid: str, cidr: str) -> None:
        await self.ledger.grant(uid, parse_block(cidr), chosen=False)

    @property
    def taken(self) -> list[str]:
        return list(self.server.find(RANGE, "p")["status"]["taken"])

    def turned(self, page: Page) -> None: ...
    def counts(self, page: Page) -> dict[str, Any]:
        return {}

    def wrote(self, page: Page, returned: list[tuple[str, Block]]) -> None: ...


def test_of_two_that_overlap_in_one_write_one_is_lost() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.begin()
        wishes = (
            scene.grant("a", "10.0.0.0/31"),
            scene.grant("b", "10.0.0.1/32"),
            scene.grant("c", "10.0.0.7/32"),
        )
        first, second, third = await asyncio.gather(*wishes, return_exceptions=True)
        assert (first, third) == (None, None)
        assert isinstance(second, GrantLost)
        assert scene.taken == ["10.0.0.0-10.0.0.1", "10.0.0.7"]

    virtual.run(main())


def test_an_edit_with_a_mistake_in_it_stops_nobody_else() -> None:
    """Its owner hears of it; the next write does not meet it again."""

    def mistake(draft: Draft) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        scene = Scene()
        await scene.begin()
        with pytest.raises(ZeroDivisionError):
            await scene.ledger.change(mistake, scene.ledger.version)
        await scene.grant("a", "10.0.0.0/32")
        assert scene.taken == ["10.0.0.0"]

    virtual.run(main())


def test_a_write_meant_for_one_range_is_not_made_on_the_next_of_its_name() -> None:
    """K-102: the new range's page was begun by another operator; our grant was chosen from the old one."""

    async def main() -> None:
        scene = Scene()
        await scene.begin()
        scene.server.delete(RANGE, "p")
        scene.server.create(RANGE, "p", {"ranges": ["10.1.0.0/24"]})
        scene.server.edit(RANGE, "p", status={"taken": []})
        scene.look()
        with pytest.raises(Conflict, match="gone"):
            await scene.grant("a", "10.0.0.0/32")
        assert scene.taken == []

    virtual.run(main())


def test_a_range_in_too_many_pieces_grants_nothing_and_takes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the API server would refuse the object: a release must still find room on the page."""
    monkeypatch.setattr("berth.dialects.kubipam.leases.LARGEST_PAGE", 30)

    async def main() -> None:
        scene = Scene()
        await scene.begin()
        for number in (0, 2, 4):
            await scene.grant(f"u{number}", f"10.0.0.{number}/32")
        with pytest.raises(NotStored, match="too many pieces"):
            await scene.grant("more", "10.0.0.6/32")
        await scene.ledger.release("u2", [], [], scene.ledger.epoch)
        assert scene.taken == ["10.0.0.0", "10.0.0.4"]
        await scene.grant("more", "10.0.0.6/32")

    virtual.run(main())


def test_a_page_is_written_only_over_the_one_it_was_made_from() -> None:
    """Another operator took the block meanwhile, and our cache does not show it yet."""

    async def main() -> None:
        scene = Scene()
        await scene.begin()
        pending = ["other 10.0.0.0/32"]
        scene.server.patch(RANGE, "p", {"status": {"taken": ["10.0.0.0"], "pending": pending}}, NAMESPACE)
        with pytest.raises(GrantLost):
            await scene.grant("a", "10.0.0.0/32")
        await scene.grant("a", "10.0.0.1/32")
        assert scene.taken == ["10.0.0.0-10.0.0.1"]

    virtual.run(main())


def test_of_one_version_the_servers_own_word_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CRD was just applied, and the watch still tells what the one before lets through, faster than we are
    answered. Nobody tells that version again."""

    async def main() -> None:
        scene = Scene()
        store = scene.server.patch

        def stored(*args: Any) -> dict[str, Any]:
            answer = store(*args)
            scene.cache.apply("MODIFIED", {**answer, "status": {}})
            return answer

        monkeypatch.setattr(scene.server, "patch", stored)
        await scene.begin()
        monkeypatch.setattr(scene.server, "patch", store)
        await scene.grant("a", "10.0.0.0/32")
        assert scene.taken == ["10.0.0.0"]

    virtual.run(main())


def test_a_page_that_is_not_kept_grants_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CRD is an older one: the answer is no error, and lacks the page. Until it is another one."""

    async def main() -> None:
        scene = Scene()
        store = scene.server.patch
        monkeypatch.setattr(scene.server, "patch", lambda *args: scene.server.find(RANGE, "p"))
        for _ in range(2):
            with pytest.raises(Pruned, match="kubectl apply"):
                await scene.begin()
            assert scene.ledger.fault is not None
            assert scene.ledger.page is None
        with pytest.raises(Conflict):
            await scene.grant("a", "10.0.0.0/32")
        monkeypatch.setattr(scene.server, "patch", store)
        await scene.ledger.flush()
        assert scene.ledger.fault is None
        await scene.begin()
        await scene.grant("a", "10.0.0.0/32")
        assert scene.taken == ["10.0.0.0"]

    virtual.run(main())
