"""What others refuse after our answer: given back, turned back, or kept, and how we are registered."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.killing import serves, settled
from tests.support.operator import eventually
from tests.support.refusing import Silent, is_theirs, refusing, until_refused
from tests.support.vitistack import World, address_of, emptied, fresh, served

from berth.control.webhooks import MUTATING
from berth.control.webhooks import VALIDATING as WEBHOOKS
from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds
from berth.errors import AlreadyExists, KubeError, NotFound, StatusError
from berth.kube.resource import Resource

GROUP = "admissionregistration.k8s.io"
POLICY = Resource(GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False)
BINDING = Resource(
    GROUP, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", namespaced=False
)
pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
DAY_MS = 24 * 3600 * 1000
REFUSED = 50
# The operator's and the API's pending time in tests; a record tells its end in whole seconds.
PENDING_MS, ROUNDED_MS = 4000, 500
KILLED = 20


@pytest_asyncio.fixture(loop_scope="session")
async def own() -> AsyncIterator[DevCluster]:
    """A control plane of its own: this one is killed."""
    async with DevCluster() as cluster:
        yield cluster


def story(world: World) -> dict[str, dict[str, int]]:
    """When, in ms, what happened to each address of the namespace at the IPAM-API."""
    sql = "SELECT address, event, at FROM history WHERE namespace_id = ? ORDER BY id"
    told: dict[str, dict[str, int]] = {}
    with closing(sqlite3.connect(f"file:{world.api.folder}/api.db?mode=ro", uri=True)) as database:
        for address, event, at in database.execute(sql, (world.namespace_id,)):
            told.setdefault(address, {})[event] = at
    return told


async def nothing_left(world: World) -> bool:
    mine = [one for one in await world.records() if one["data"]["namespace"] == world.namespace]
    return not mine and not world.api.of_namespace(world.namespace_id)


async def test_what_another_webhook_refuses_is_given_back(world: World, tried: Callable[[int], None]) -> None:
    """V-038, T20: registered during admission, refused by someone else: not free before the pending time, and
    soon after it.
    """
    named = world.free_address()
    async with refusing(world):
        await until_refused(
            lambda: world.create("never", annotations={"addresses": named}), lambda: world.delete("never")
        )
        results = await asyncio.gather(
            *(world.create(f"never-{number}") for number in range(REFUSED)), return_exceptions=True
        )
        assert all(map(is_theirs, results)), results

    async def is_free() -> bool:
        pooled = await world.pooled(f"{named}/32")
        return await nothing_left(world) and named not in world.api.addresses() and not pooled

    assert await eventually(is_free, 60)
    told = {address: times for address, times in story(world).items() if address != named}
    assert len(told) == REFUSED, "an address for each"
    held = [times["left"] - times["registered"] for times in told.values() if "confirmed" in times]
    assert len(held) == REFUSED, "not all were confirmed"
    assert min(held) >= PENDING_MS - ROUNDED_MS, "given back while it might still have been stored"
    tried(len(results))


@asynccontextmanager
async def kept_waiting(world: World) -> AsyncIterator[None]:
    """Another webhook never answers: no Service of the namespace is stored, whatever ours say."""
    silent = Silent()
    server = await asyncio.start_server(silent, "127.0.0.1", 0)

    async def is_asked() -> bool:
        with suppress(NotFound):
            await world.delete("probe")
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await world.create("probe", type="ClusterIP")
        return silent.asked > 0

    try:
        async with refusing(world, port=server.sockets[0].getsockname()[1]):
            assert await eventually(is_asked, 60)
            yield
    finally:
        server.close()


async def test_what_a_killed_api_server_did_not_store_is_given_back(
    own: DevCluster, tmp_path: Path, tried: Callable[[int], None]
) -> None:
    """T20: killed after our webhooks answered, while creates are under way; nothing is held for nobody."""
    async with served(own, tmp_path, assign=False) as stage:
        world = await fresh(stage)
        await serves(world)
        async with kept_waiting(world):
            asking = [asyncio.create_task(world.create(f"never-{number}")) for number in range(KILLED)]

            async def are_confirmed() -> bool:
                return sum("confirmed" in times for times in story(world).values()) == KILLED

            assert await eventually(are_confirmed, 60)
            assert len(world.api.of_namespace(world.namespace_id)) == KILLED
            assert not any(one.done() for one in asking)
            await own.restart_apiserver()
            results = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(one, KubeError) for one in results), results
        assert not await world.services()
        assert not await settled(world)
        assert await nothing_left(world)
        tried(len(results))


async def retained(world: World) -> tuple[str, int]:
    """An address that a Service left with a retention of seven days, and when that is over."""
    address = address_of(await world.create("kept", annotations={"retention-period-days": "7"}))
    await world.delete("kept")

    async def due() -> int:
        return world.api.entries(address)["kept"].expires_at or 0

    return address, await eventually(due, 60)


def is_as_before(world: World, address: str, due: int) -> bool:
    """The IPAM-API counts whole days: never less than before, and less than one more."""
    ends = world.api.entries(address)["kept"].expires_at
    return ends is not None and due <= ends < due + DAY_MS


async def test_a_recall_that_another_webhook_refuses_is_retained_as_before(world: World) -> None:
    """V-038, H-07, I2: confirmed, and then not stored."""
    address, due = await retained(world)
    async with refusing(world):
        await until_refused(
            lambda: world.create("kept", annotations={"retention-period-days": "7"}),
            lambda: world.delete("kept"),
        )
        assert world.api.entries(address)["kept"].active  # the API server heard both of us

    async def is_retained() -> bool:
        mine = [one["data"] for one in await world.records() if one["data"]["namespace"] == world.namespace]
        marks = [one.get("released") for one in mine]
        return is_as_before(world, address, due) and marks == ["true"] and not await world.pooled(address)

    assert await eventually(is_retained, 60)


async def test_a_recall_whose_pool_cannot_be_written_is_retained_as_before(world: World) -> None:
    """V-039, H-07, I2: undone before the answer."""
    address, due = await retained(world)

    async def has_left() -> bool:
        return not await world.pooled(address)

    assert await eventually(has_left, 60)
    async with no_pool_writes(world):
        error = await world.refusal("kept", annotations={"retention-period-days": "7"})
        assert "pools are frozen" in error.message
        assert is_as_before(world, address, due)


async def test_a_refused_update_is_turned_back(world: World) -> None:
    """H-07 for updates: terms sent for an update that is not stored go back to what is stored."""
    address = address_of(await world.create())
    async with refusing(world, "UPDATE"):
        await until_refused(
            lambda: world.annotate(retention_period_days="9"),
            lambda: world.annotate(retention_period_days="0"),
        )

    async def is_back() -> bool:
        return world.api.entries(address)["my-service"].retention == 0

    assert await eventually(is_back, 60)
    assert world.api.entries(address)["my-service"].active


async def test_a_deletion_refused_by_others_keeps_the_address(world: World) -> None:
    """V-102"""
    address = address_of(await world.create())
    async with refusing(world, "DELETE"):
        await until_refused(world.delete, world.create)
        address = address_of(await world.get())
        assert world.api.entries(address)["my-service"].active
    other = await fresh(world)  # where deletions are not refused
    await other.passed()
    assert world.api.entries(address)["my-service"].active
    await emptied(other)


async def test_the_webhooks_are_registered_as_documented(stage: World) -> None:
    """V-226, V-225: Fail, no DELETE, on LoadBalancers only, 17 namespaces out, NoneOnDryRun, 30 s."""
    for resource, configuration, name, path in (
        (MUTATING, kinds.MUTATING_CONFIGURATION, "mservice-v1.kb.io", "/mutate--v1-service"),
        (WEBHOOKS, kinds.VALIDATING_CONFIGURATION, "vservice-v1.kb.io", "/validate--v1-service"),
    ):
        (entry,) = (await stage.client.get(resource, configuration))["webhooks"]
        assert entry["name"] == name
        assert entry["failurePolicy"] == "Fail"
        assert [rule["operations"] for rule in entry["rules"]] == [["CREATE", "UPDATE"]]
        assert entry["sideEffects"] == "NoneOnDryRun"
        assert entry["timeoutSeconds"] == 30
        assert len(entry["namespaceSelector"]["matchExpressions"][0]["values"]) == 17
        assert "LoadBalancer" in entry["matchConditions"][0]["expression"]
        assert entry["clientConfig"]["url"].endswith(path)
        assert entry["clientConfig"]["caBundle"]


@asynccontextmanager
async def no_pool_writes(world: World) -> AsyncIterator[None]:
    """Nobody may write pools, as if MetalLB's own webhook said no."""
    rules = [
        {
            "apiGroups": ["metallb.io"], "apiVersions": ["v1beta1"], "resources": ["ipaddresspools"],
            "operations": ["CREATE", "UPDATE"],
        }
    ]  # fmt: skip
    spec = {
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "false", "message": "pools are frozen"}],
    }
    binding = {"policyName": "frozen-pools", "validationActions": ["Deny"]}
    for resource, body in ((POLICY, spec), (BINDING, binding)):
        about = {"apiVersion": resource.api_version, "kind": resource.kind}
        await world.client.create(resource, {**about, "metadata": {"name": "frozen-pools"}, "spec": body})
    probe = {
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
        "metadata": {"name": "probe", "namespace": "metallb-system"}, "spec": {"addresses": ["192.0.2.1/32"]},
    }  # fmt: skip

    async def is_frozen() -> bool:
        try:
            await world.client.create(kinds.POOL, probe, dry_run=True)
        except AlreadyExists:
            return False
        except StatusError as error:
            return "pools are frozen" in str(error)
        return False

    async def is_thawed() -> bool:
        return not await is_frozen()

    assert await eventually(is_frozen, 60)
    try:
        yield
    finally:
        for resource in (BINDING, POLICY):
            await world.client.delete(resource, "frozen-pools")
        assert await eventually(is_thawed, 60)


async def test_a_pool_that_cannot_be_written_refuses_and_undoes(world: World) -> None:
    """V-039, V-072: the API server's own answer; nothing stays registered, the old address stays."""
    first = address_of(await world.create("live"))
    named = world.free_address()
    async with no_pool_writes(world):
        error = await world.refusal(annotations={"addresses": named})
        assert "pools are frozen" in error.message
        assert "pools are frozen" in await world.not_annotated("live", addresses=world.free_address())
        assert address_of(await world.get("live")) == first

        async def is_undone() -> bool:
            return named not in world.api.addresses()

        assert await eventually(is_undone, 60)
    assert world.api.entries(first)["live"].active
