"""One word for one refusal: the same in the answer, the metric and the event, whoever refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest
from tests.central.faults.telling import A, report
from tests.support.central import OTHER_SECRET, Options, Reply, Seconds, World, request_body

from berth.central.integrations.event_log import EventLog
from berth.central.settings import ApiLimits

Start = Callable[..., AbstractAsyncContextManager[World]]
Refuse = Callable[[World], Awaitable[Reply]]


async def no_match(world: World) -> Reply:
    await world.post(address=A)
    return await world.post(address=A, secret=OTHER_SECRET)


async def not_holder(world: World) -> Reply:
    await world.post(address=A)
    return await world.delete("other", address=A)


async def several_holders(world: World) -> Reply:
    await world.post("a", address=A)
    await world.post("b", address=A)
    return await world.post("a", address=A, new_secret=OTHER_SECRET)


async def other_holder(world: World) -> Reply:
    await world.post("a", address=A)
    return await world.post("b", address=A, new_secret=OTHER_SECRET)


async def exhausted(world: World) -> Reply:
    await world.post("a", zone="one")
    return await world.post("b", zone="one")


async def frozen(world: World) -> Reply:
    await world.post("a", address=A)
    for epoch in ("original", "copy"):
        await report(world, 1, request_body("a", address=A), epoch=epoch)
    return await world.delete("a", address=A)


async def too_many(world: World) -> Reply:
    replies = [await world.send("GET", "/") for _ in range(40)]
    return next(one for one in replies if one.status == 429)


async def unavailable(world: World) -> Reply:
    async with world.ledger.engine.transaction() as tx:
        await tx.lock(None)
        return await world.post()


def asking(method: str, path: str, body: Any = None) -> Refuse:
    async def ask(world: World) -> Reply:
        return await world.send(method, path, body)

    return ask


def posting(service: str = "a", **changes: Any) -> Refuse:
    async def post(world: World) -> Reply:
        return await world.post(service, **changes)

    return post


ZONES = "zones: [{name: inet, ipv4: [83.118.168.0/22]}, {name: one, ipv4: [10.0.0.1/32]}]"
KINDS: dict[str, tuple[int, Refuse]] = {
    "Invalid": (400, posting(secret="short")),
    "Unparsable": (400, asking("POST", "/v2/address", b"{")),
    "UnknownZone": (400, posting(zone="mars")),
    "FamilyAbsent": (400, posting(ip_family="ipv6")),
    "PinOutside": (400, posting(address="192.0.2.1")),
    "NoMatch": (404, no_match),
    "NotHolder": (404, not_holder),
    "SeveralHolders": (409, several_holders),
    "OtherHolder": (409, other_holder),
    "ClusterFrozen": (409, frozen),
    "PoolExhausted": (503, exhausted),
    "NotFound": (404, asking("GET", "/nothing")),
    "MethodNotAllowed": (405, asking("PUT", "/v2/address")),
    "TooLarge": (413, asking("POST", "/v2/address", b"x" * 70_000)),
    "StoreDown": (503, unavailable),
}


@pytest.mark.parametrize("reason", KINDS)
async def test_answer_metric_and_event_have_the_same_word(start: Start, reason: str) -> None:
    status, refuse = KINDS[reason]
    limits = ApiLimits(request_seconds=0.5 if reason == "StoreDown" else 10.0)
    await same_word(start, Options(zones=ZONES, limits=limits), refuse, (status, reason))


async def test_too_many_requests_are_told_by_one_word(start: Start) -> None:
    limits = ApiLimits(rate_per_second=10)
    await same_word(start, Options(limits=limits, seconds=Seconds()), too_many, (429, "TooManyRequests"))


async def test_a_quota_is_told_by_one_word(start: Start) -> None:
    async def second(world: World) -> Reply:
        await world.post("a")
        return await world.post("b")

    await same_word(start, Options(rules={"quota": 1}), second, (403, "QuotaExceeded"))


async def same_word(start: Start, options: Options, refuse: Refuse, expected: tuple[int, str]) -> None:
    told: list[dict[str, Any]] = []
    async with start(_with_journal(options, told)) as world:
        reply = await refuse(world)
        assert (reply.status, reply.body["reason"]) == expected
        counts = {
            sample.labels["reason"]: sample.value
            for metric in world.api.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == "berth_api_refusals_total"
        }
    errors = [one["event"]["error"] for one in told if one["event"]["message"] == "request error"]
    assert set(counts) == set(errors) == {expected[1]}
    assert counts[expected[1]] == len(errors)


def _with_journal(options: Options, told: list[dict[str, Any]]) -> Options:
    return replace(options, journal=EventLog(told.append))
