"""leader: one of two leads, a leader without renewal falls silent in time, a clean stop hands over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from tests.support.fake_api import FakeApi, Link
from tests.support.virtual import now, run

from berth.control.leader import LEASES, Election, Elector, NoElection, boottime
from berth.errors import Forbidden, NotLeader


class Replica:
    """An elector with its own link, a suspend offset and a record of when it led."""

    def __init__(self, server: FakeApi, name: str, **times: float) -> None:
        self.link: Link = server.link()
        self.suspended_seconds = 0.0
        self.told: list[bool] = []
        election = Election("default", "berth", name, **times)
        self.elector = Elector(self.link, election, clock=self.clock, tell=self.told.append)
        self.led_at: float | None = None
        self.ended_at: float | None = None

    def clock(self) -> float:
        return now() + self.suspended_seconds

    async def work(self) -> None:
        self.led_at = now()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended_at = now()

    async def run(self) -> None:
        await self.elector.run(self.work)

    def may_write(self) -> bool:
        with suppress(NotLeader):
            self.elector.guard()
            return True
        return False


async def stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def holder(server: FakeApi) -> str:
    return str(server.stored(LEASES, "berth", "default")["spec"]["holderIdentity"])


Story = Callable[[FakeApi, Replica, Replica], Awaitable[None]]


def play(story: Story) -> None:
    async def main() -> None:
        server = FakeApi()
        await story(server, Replica(server, "one"), Replica(server, "two"))

    run(main())


def test_the_first_leads_and_the_second_waits() -> None:
    async def story(server: FakeApi, one: Replica, two: Replica) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one.run())]
            await asyncio.sleep(1)
            tasks.append(group.create_task(two.run()))
            await asyncio.sleep(600)
            assert (one.may_write(), two.may_write()) == (True, False)
            assert holder(server) == "one"
            assert one.told == [True]
            for task in tasks:
                task.cancel()

    play(story)


def test_never_do_both_pass_the_guard_however_the_links_fail() -> None:
    """Links go down and come back in every phase; at each tenth of a second at most one may write."""

    async def story(server: FakeApi, one: Replica, two: Replica) -> None:
        tasks = [asyncio.create_task(one.run()), asyncio.create_task(two.run())]
        led: set[Elector] = set()
        for tick in range(2000):
            one.link.down = 200 < tick < 700
            two.link.hangs = 900 < tick < 1300
            await asyncio.sleep(0.1)
            writers = [replica for replica in (one, two) if replica.may_write()]
            assert len(writers) <= 1
            led.update(replica.elector for replica in writers)
        assert led == {one.elector, two.elector}
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, NotLeader) for result in results)

    play(story)


def test_a_leader_that_cannot_renew_falls_silent_before_the_lease_ends() -> None:
    async def story(server: FakeApi, one: Replica, two: Replica) -> None:
        task = asyncio.create_task(one.run())
        await asyncio.sleep(5)
        one.link.down = True
        cut_at = now()
        with pytest.raises(NotLeader):
            await task
        assert one.elector.lost.is_set()
        assert one.ended_at is not None
        assert one.ended_at - cut_at <= 10.0
        assert not one.may_write()
        assert one.told == [True, False]

    play(story)


def test_a_link_that_hangs_ends_leadership_no_later_than_one_that_refuses() -> None:
    async def story(server: FakeApi, one: Replica, two: Replica) -> None:
        task = asyncio.create_task(one.run())
        await asyncio.sleep(5)
        one.link.hangs = True
        cut_at = now()
        with pytest.raises(NotLeader):
            await task
        assert now() - cut_at <= 10.0
        assert not one.may_write()

    play(story)


def test_an_outage_shorter_than_the_renew_deadline_costs_nothing() -> None:
    async def story(server: FakeApi, one: Replica, two: Replica) -> None:
        task = asyncio.create_task(one.run())
        await asyncio.sleep(5)
        one.link.down = True
        await asyncio.sleep(7)
        one.link.down = False
        await asyncio.sleep(60)
        assert one.may_write()
        await stopped(task)

    play(story)


def test_after_a_suspend_past_the_lease_the_first_guard_refuses() -> None:
    """The loop's own clock did not move: only the clock that counts suspend knows."""

    async def story(server: FakeApi, one: Replica, two: Replica) -> None:
        task = asyncio.create_task(one.run())
        await asyncio.sleep(5)
        assert one.may_write()
        writes = len(server.writes)
        one.suspended_seconds = 20.0
        assert not one.may_write()
        with pytest.raises(NotLeader):
            await task
        assert len(server.writes) == writes, "a lost lease is not touched again"

    play(story)


def test_the_guard_keeps_the_margin_between_the_renew_deadline_and_the_lease() -> None:
    async def story(server: FakeApi, one: Replica, two: Replica) -> None:
        task = asyncio.create_task(one.run())
        await one.elector.leading.wait()
        sent_at = one.clock() - 0.002
        one.suspended_seconds = 9.9 - (now() - sent_at)
        assert one.may_write()
        one.suspended_seconds += 0.2
        assert not one.may_write(), "the lease lasts 15 s, but writes need time to arrive"
        with pytest.raises(NotLeader):
            await task

    play(story)


def test_a_successor_waits_a_whole_lease_from_when_it_saw_the_last_renewal() -> None:
    async def story(server: FakeApi, one: Replica, two: Replica) -> None:
        first = asyncio.create_task(one.run())
        second = asyncio.create_task(two.run())
        await asyncio.sleep(30)
        last_renewal_at = now()
        one.link.down = True
        with pytest.raises(NotLeader):
            await first
        await two.elector.leading.wait()
        assert two.led_at is None or two.led_at - last_renewal_at >= 15.0 - 2.0
        assert now() - last_renewal_at <= 15.0 * 1.5
        assert server.stored(LEASES, "berth", "default")["spec"]["leaseTransitions"] == 1
        await stopped(second)

    play(story)


def test_a_clean_stop_empties_the_lease_and_the_successor_takes_over_at_once() -> None:
    async def story(server: FakeApi, one: Replica, two: Replica) -> None:
        first = asyncio.create_task(one.run())
        await asyncio.sleep(3)
        second = asyncio.create_task(two.run())
        await asyncio.sleep(3)
        await stopped(first)
        assert holder(server) == ""
        stopped_at = now()
        await two.elector.leading.wait()
        assert now() - stopped_at <= 2.0 * 1.2 + 0.1
        await stopped(second)

    play(story)


def test_the_lease_is_given_back_only_after_the_work_has_ended() -> None:
    async def story(server: FakeApi, one: Replica, two: Replica) -> None:
        async def slow_to_stop() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(4)
                assert holder(server) == "one"
                one.elector.guard()

        task = asyncio.create_task(one.elector.run(slow_to_stop))
        await asyncio.sleep(3)
        await stopped(task)
        assert holder(server) == ""
        assert not one.may_write()

    play(story)


def test_a_renewal_whose_answer_was_lost_is_recognised_as_ours() -> None:
    async def story(server: FakeApi, one: Replica, two: Replica) -> None:
        task = asyncio.create_task(one.run())
        await asyncio.sleep(5)
        one.link.deaf = True
        await asyncio.sleep(5)
        one.link.deaf = False
        await asyncio.sleep(60)
        assert one.may_write()
        await stopped(task)
        assert holder(server) == ""

    play(story)


def test_a_lease_taken_by_another_ends_leadership_at_the_next_renewal() -> None:
    async def story(server: FakeApi, one: Replica, two: Replica) -> None:
        task = asyncio.create_task(one.run())
        await asyncio.sleep(5)
        stolen = server.stored(LEASES, "berth", "default")
        stolen["spec"]["holderIdentity"] = "thief"
        server.swap(LEASES, stolen)
        with pytest.raises(NotLeader):
            await asyncio.wait_for(task, 2.5)
        assert holder(server) == "thief"

    play(story)


def test_a_lease_that_someone_deleted_is_made_again() -> None:
    async def story(server: FakeApi, one: Replica, two: Replica) -> None:
        task = asyncio.create_task(one.run())
        await asyncio.sleep(5)
        server.objects.clear()
        await asyncio.sleep(5)
        assert holder(server) == "one"
        assert one.may_write()
        await stopped(task)

    play(story)


def test_a_candidate_without_permission_goes_on_asking() -> None:
    async def story(server: FakeApi, one: Replica, two: Replica) -> None:
        one.link.refuses = Forbidden(403, "may not create leases", status_reason="Forbidden")
        task = asyncio.create_task(one.run())
        await asyncio.sleep(30)
        assert not one.may_write()
        one.link.refuses = None
        await one.elector.leading.wait()
        await stopped(task)

    play(story)


def test_what_the_work_raises_comes_out_and_the_lease_is_given_back() -> None:
    async def story(server: FakeApi, one: Replica, two: Replica) -> None:
        async def broken() -> None:
            raise ZeroDivisionError

        with pytest.raises(BaseExceptionGroup) as raised:
            await one.elector.run(broken)
        assert raised.value.subgroup(ZeroDivisionError) is not None
        assert holder(server) == ""

    play(story)


def test_a_guard_that_refused_inside_the_work_counts_as_loss() -> None:
    async def story(server: FakeApi, one: Replica, two: Replica) -> None:
        async def writes() -> None:
            one.suspended_seconds = 100.0
            one.elector.guard()

        with pytest.raises(NotLeader):
            await one.elector.run(writes)
        assert one.elector.lost.is_set()
        assert holder(server) == "one", "a lost lease is left to run out"

    play(story)


def test_times_that_leave_no_margin_are_refused() -> None:
    with pytest.raises(ValueError, match="retry < renew < lease"):
        Election("default", lease_seconds=10.0, renew_seconds=10.0)


def test_identities_differ_between_processes_on_one_host() -> None:
    assert Election("default").identity != Election("default").identity


def test_without_election_the_guard_passes_before_and_during_the_work() -> None:
    async def main() -> None:
        told: list[bool] = []
        elector = NoElection(tell=told.append)
        elector.guard()

        async def work() -> None:
            assert elector.leading.is_set()
            elector.guard()

        await elector.run(work)
        assert told == [True, False]

    run(main())


def test_the_clock_counts_on() -> None:
    assert boottime() <= boottime()
