"""A pod that reaches the webhooks' port and makes up reviews, against the vitistack dialect."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from tests.support.forging import PATHS, Forger, edited, review
from tests.support.vitistack import (
    SYSTEM,
    VALUE,
    World,
    address_of,
    emptied,
    eventually,
    fresh,
    served,
    service,
)

from berth.control.events import EVENTS
from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds, stored

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]
Object = dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with served(cluster, tmp_path_factory.mktemp("api"), assign=False) as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="session")
async def victim(stage: World) -> AsyncIterator[World]:
    victim = await fresh(stage, "victim")
    yield victim
    await emptied(victim)


@pytest_asyncio.fixture(loop_scope="session")
async def tenant(stage: World) -> AsyncIterator[World]:
    tenant = await fresh(stage, "tenant")
    await tenant.secret()
    yield tenant
    await emptied(tenant)


@pytest_asyncio.fixture(loop_scope="session")
async def forger(stage: World) -> AsyncIterator[Forger]:
    assert stage.operator is not None
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
        yield Forger(stage.operator.settings.webhook_url, session)


async def everything(world: World) -> tuple[Any, ...]:
    """All that a review could change: the ledger, our records and copies, and Events."""
    copies = [one["metadata"]["name"] for one in (await world.client.list(kinds.SECRET, SYSTEM)).items]
    records = sorted((one["metadata"]["name"], str(one["data"])) for one in await world.records())
    refused = [one for one in (await world.client.list(EVENTS)).items if one["reason"] == "AddressRefused"]
    return world.history(), sorted(copies), records, len(refused)


async def rested(world: World, **wishes: Any) -> Object:
    """A Service of which the controller asks nothing more."""
    annotations = {"retention-period-days": "1", **wishes.pop("annotations", {})}
    made = await world.create(annotations=annotations, **wishes)
    await world.rested()
    return made


async def test_a_secret_replaced_through_another_namespace(
    victim: World, tenant: World, forger: Forger
) -> None:
    """The request names the victim's namespace, the object the tenant's, where a Secret is that he knows."""
    theirs = await rested(victim)
    before = await everything(victim)
    mine = edited(theirs, {"namespace": tenant.namespace}, secret="my-secret")
    for path in PATHS:
        for about in ({"namespace": victim.namespace}, {"namespace": tenant.namespace}):
            said = await forger.ask(path, operation="UPDATE", object=mine, oldObject=theirs, **about)
            assert said.status == 400, said
            assert "is not that of the request" in said.text
    await victim.passed()
    assert (await everything(victim))[1:3] == before[1:3]
    assert await victim.opens(address_of(theirs), await victim.default_secret())
    assert not await victim.opens(address_of(theirs), VALUE)


async def test_a_secret_replaced_by_a_review_alone(tenant: World, forger: Forger) -> None:
    """All of it is true but that nobody asked the API server: nothing is replaced."""
    live = await rested(tenant)
    before = await everything(tenant)
    for _ in range(3):
        new = edited(live, secret="my-secret")
        await forger.ask(kinds.VALIDATE_PATH, operation="UPDATE", object=new, oldObject=live)
    assert await everything(tenant) == before
    assert await tenant.opens(address_of(live), await tenant.default_secret())


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "lie",
    [{"resourceVersion": "1"}, {"uid": "0e6a8b1c-0000-4000-8000-000000000000"}, {"resourceVersion": ""}],
    ids=["version", "uid", "none"],
)
async def test_an_update_of_what_is_not_stored(
    victim: World, forger: Forger, path: str, lie: dict[str, str]
) -> None:
    """An old object that is not the stored one is a conflict: no address, no secret, no terms, no Event."""
    live = await rested(victim)
    before = await everything(victim)
    old = edited(live, lie)
    for changes in (
        {"addresses": victim.free_address()},
        {"ip_family": "dual"},
        {"retention_period_days": "30", "deny_external_cleanup": "true"},
        {"secret": "nowhere"},
    ):
        said = await forger.ask(path, operation="UPDATE", object=edited(old, None, **changes), oldObject=old)
        assert said.allowed or said.code == 409, said
    assert await everything(victim) == before


async def test_an_update_without_an_old_object(victim: World, forger: Forger) -> None:
    """Of a Service that is there, and of one that is not."""
    live = await rested(victim)
    before = await everything(victim)
    for path in PATHS:
        for new in (edited(live, addresses=""), edited(live, {"name": "nobody"})):
            said = await forger.ask(path, operation="UPDATE", object=new)
            assert said.allowed or said.code in (404, 409), said
    assert await everything(victim) == before


async def test_a_stored_service_created_again(victim: World, forger: Forger) -> None:
    """With another UID, another secret and its own address: what is there stays its."""
    live = await rested(victim)
    before = await everything(victim)
    bare = {"uid": str(uuid.uuid4()), "resourceVersion": None}
    for path in PATHS:
        for changes in ({}, {"secret": "nowhere"}, {"addresses": victim.free_address()}):
            said = await forger.ask(path, object=edited(live, bare, **changes))
            assert not said.allowed, said
            assert said.code in (409, 422), said  # its ports are taken, too
    assert await everything(victim) == before


async def test_a_review_repeated_later(tenant: World, forger: Forger) -> None:
    """A true one that somebody kept: the Service has gone on since, and then is gone."""
    live = await rested(tenant)
    new = edited(live, addresses=tenant.free_address(), retention_period_days="7")
    kept = review(operation="UPDATE", object=new, oldObject=live)
    await tenant.patch({"metadata": {"labels": {"went": "on"}}})
    before = await everything(tenant)
    for path in PATHS:
        said = await forger.send(path, kept)
        assert said.allowed or said.code == 409, said
    assert await everything(tenant) == before
    await tenant.annotate(retention_period_days="0")
    await tenant.delete()

    async def is_released() -> bool:
        return not tenant.api.of_namespace(tenant.namespace_id)

    assert await eventually(is_released, 60)
    before = await everything(tenant)
    for path in PATHS:
        said = await forger.send(path, kept)
        assert said.allowed or said.code in (404, 409), said
    assert (await everything(tenant))[0] == before[0]


async def test_namespaces_that_are_not_there_or_going(victim: World, forger: Forger) -> None:
    """Nothing is spent for them, nor for a dry run."""
    going = await fresh(victim, "going")
    finalized = {"metadata": {"finalizers": ["example.org/hold"]}}
    await victim.client.patch(kinds.NAMESPACE, going.namespace, finalized)
    await victim.client.delete(kinds.NAMESPACE, going.namespace)
    spent = victim.api.addresses()
    for path in PATHS:
        for namespace in ("nowhere", going.namespace):
            new = edited(service("made-up", namespace), {"uid": "u"}, **complete(victim.free_address()))
            said = await forger.ask(path, object=new)
            assert not said.allowed, said
        new = edited(service("made-up", victim.namespace), {"uid": "u"}, **complete(victim.free_address()))
        assert (await forger.ask(path, object=new, dryRun=True)).allowed
    assert victim.api.addresses() == spent
    assert not [one for one in await victim.records() if one["data"]["service"] == "made-up"]
    await victim.client.patch(kinds.NAMESPACE, going.namespace, {"metadata": {"finalizers": None}})


def complete(address: str) -> dict[str, str]:
    """All that the mutating webhook would have filled in."""
    return {
        "addresses": address,
        "allow_local_shared_ip": "k",
        "deny_external_cleanup": "false",
        "ip_family": "ipv4",
        "retention_period_days": "0",
        "secret": "default",
        "zone": "inet",
    }


@pytest.mark.parametrize("path", PATHS)
async def test_more_creations_than_a_namespace_may_have_under_way(
    tenant: World, forger: Forger, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """What nobody stores is bounded, and comes back by itself; then there is room again."""
    monkeypatch.setattr(stored, "MOST", 3)
    codes: Counter[int] = Counter()
    for number in range(20):
        new = service(f"made-up-{number}", tenant.namespace)
        if path == kinds.VALIDATE_PATH:
            new = edited(new, {"uid": str(uuid.uuid4())}, **complete(tenant.free_address()))
        codes[(await forger.ask(path, object=new)).code] += 1
    assert codes == {200: 6, 429: 14}
    assert len(tenant.api.of_namespace(tenant.namespace_id)) == 6

    async def has_lapsed() -> bool:
        return not tenant.api.of_namespace(tenant.namespace_id)

    assert await eventually(has_lapsed, 60)
    assert address_of(await eventually(lambda: tenant.create("real"), 60))
