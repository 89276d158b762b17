"""A pod that reaches the webhooks' port and makes up reviews, against the vitistack dialect."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import orjson
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

from berth.control import admission
from berth.control.events import EVENTS
from berth.control.review import Review, parse_review
from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds, stored
from berth.kube import meta

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


async def test_a_creation_repeated_after_its_service_is_gone(
    tenant: World, forger: Forger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """True ones, as the API server sent them to both webhooks: a minute later they came before, an hour later
    they are old, to whichever replica; and nothing is spent.
    """
    heard: dict[str, bytes] = {}

    def listen(body: bytes) -> Review:
        found = parse_review(body)
        heard["VALIDATE" if found.object["metadata"].get("uid") else "MUTATE"] = body
        return found

    with monkeypatch.context() as patched:
        patched.setattr(admission, "parse_review", listen)
        await tenant.create()
    assert len(heard) == 2
    await tenant.delete()

    async def is_released() -> bool:
        return not tenant.api.of_namespace(tenant.namespace_id)

    assert await eventually(is_released, 60)
    before = await everything(tenant)
    paths = {"MUTATE": kinds.MUTATE_PATH, "VALIDATE": kinds.VALIDATE_PATH}
    for webhook, path in paths.items():
        said = await forger.send(path, heard[webhook])
        assert (said.allowed, said.code) == (False, 409), said
        assert "was answered already" in said.text
    monkeypatch.setattr(stored, "STALE_SECONDS", -1.0)
    for webhook, path in paths.items():
        another = orjson.loads(heard[webhook])
        another["request"]["uid"] = str(uuid.uuid4())  # one that this replica has not seen
        said = await forger.send(path, orjson.dumps(another))
        assert (said.allowed, said.code) == (False, 409), said
        assert "ago by the operator's clock" in said.text
    assert await everything(tenant) == before


async def test_a_retained_address_taken_over_with_a_sharing_key_of_ones_own(
    victim: World, tenant: World, forger: Forger
) -> None:
    """A made-up return of the victim's Service changes neither the key, nor the secret, nor the terms: the
    tenant stays outside, and the victim comes back.
    """
    theirs = await rested(victim, annotations={"retention-period-days": "7"})
    address, key = address_of(theirs), meta.annotations(theirs)[kinds.SHARING_KEY]
    await victim.secret("theirs")
    await victim.delete()

    async def is_retained() -> bool:
        return not victim.api.entries(address)["my-service"].active

    assert await eventually(is_retained, 60)
    wish = {"addresses": address, "allow-local-shared-ip": "mine"}
    assert "retained in another namespace" in await tenant.refused("front", annotations=wish)
    made_up = {**complete(address), "allow_local_shared_ip": "mine", "deny_external_cleanup": "true"}
    for secret in ("default", "theirs"):
        new = edited(service("my-service", victim.namespace), {"uid": str(uuid.uuid4())}, **made_up)
        await forger.ask(kinds.VALIDATE_PATH, object=edited(new, secret=secret))
        record = await recorded(victim, address)
        assert (record["key"], record["secret"], record["deny"]) == (key, "default", "false")
        assert "retained in another namespace" in await tenant.refused("front", annotations=wish)
    back = await victim.create(annotations={"addresses": address, "allow-local-shared-ip": "new-key"})
    assert address_of(back) == address
    assert victim.api.holders(address) == 1

    async def is_corrected() -> bool:
        record = await recorded(victim, address)
        return (record["key"], record["retention-days"]) == ("new-key", "0")

    assert await eventually(is_corrected, 30)


async def recorded(world: World, address: str) -> Object:
    host = address.partition("/")[0]
    record: Object
    (record,) = [one["data"] for one in await world.records() if one["data"]["address"] == host]
    return record


@pytest.mark.parametrize("path", PATHS)
async def test_secrets_guessed_by_their_names(
    victim: World, forger: Forger, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Who asks is made up as well. After a few names in vain nothing more is told, of those there neither."""
    monkeypatch.setattr(stored, "MOST_GUESSES", 3)
    await victim.secret("theirs")

    async def guess(name: str) -> int:
        wishes = {**complete(victim.free_address()), "secret": name}
        if path == kinds.MUTATE_PATH:
            del wishes["addresses"]
        new = edited(service("made-up", victim.namespace), {"uid": str(uuid.uuid4())}, **wishes)
        return (await forger.ask(path, object=new)).code

    assert await guess("theirs") == 200
    codes = [await guess(f"guess-{number}") for number in range(6)]
    assert codes == [403, 403, 403, 429, 429, 429]
    assert await guess("guess-1") == 403  # the same again tells nothing new: whoever waits for it may ask
    assert await guess("theirs") == 429
    assert await eventually(lambda: has_room(guess), 60)


async def has_room(guess: Callable[[str], Awaitable[int]]) -> bool:
    return await guess("theirs") == 200


async def test_services_whose_fields_have_other_shapes(victim: World, forger: Forger) -> None:
    """An answer, and no failed call."""
    for spec in ("x", {"type": "LoadBalancer", "loadBalancerClass": ["x"]}, {"ports": [5]}, {"ports": "x"}):
        for port in ({}, {"ports": [{"port": "x"}]}):
            whole = {"type": "LoadBalancer", **spec, **port} if isinstance(spec, dict) else spec
            new = edited(
                service("made-up", victim.namespace), {"uid": "u"}, **complete(victim.free_address())
            )
            for path in PATHS:
                said = await forger.ask(path, object={**new, "spec": whole})
                assert said.status < 500, said
                assert said.code < 500, said


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
    assert not set(victim.api.addresses()) - set(spent)  # what others reserved before may have lapsed
    places = ("nowhere", going.namespace, victim.namespace)
    assert not [one for one in await victim.records() if one["data"]["namespace"] in places]
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
    if path == kinds.VALIDATE_PATH:  # and all namespaces together
        monkeypatch.setattr(stored, "MOST_IN_ALL", 3)
        other = await fresh(tenant, "other")
        new = edited(service("made-up", other.namespace), {"uid": "u"}, **complete(other.free_address()))
        assert (await forger.ask(path, object=new)).code == 429
    assert len(tenant.api.of_namespace(tenant.namespace_id)) == 6

    async def has_lapsed() -> bool:
        return not tenant.api.of_namespace(tenant.namespace_id)

    assert await eventually(has_lapsed, 60)
    assert address_of(await eventually(lambda: tenant.create("real"), 60))
