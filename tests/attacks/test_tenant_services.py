"""A tenant who may write Services of his namespace, against addresses and secrets of others."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from tests.support.vitistack import (
    VALUE,
    World,
    address_of,
    emptied,
    eventually,
    fresh,
    of,
    served,
    service,
)

from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds
from berth.kube import meta

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]
Object = dict[str, Any]
HOLD = "example.org/hold"
PASSWORD = "hunter2hunter2"
RETAINED = {"retention-period-days": "1"}
ROUNDS, GOING, EDITS = 5, 4, 5  # T36: so many Services in each round, and edits of each


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
    yield tenant
    await emptied(tenant)


async def terminating(world: World, name: str = "my-service", **wishes: Any) -> Object:
    """A Service that is being deleted, and stays so by a finalizer of its owner. With a retention: no update
    of it may be under way any more, so that nothing waits for one.
    """
    await world.create(name, finalizers=[HOLD], **wishes)
    if wishes:
        await world.rested(name)
    await world.delete(name)
    going = await world.get(name)
    assert meta.is_deleting(going)
    return going


async def remove_finalizer(world: World, name: str = "my-service") -> None:
    await world.patch({"metadata": {"finalizers": None}}, name)


async def is_released(world: World) -> bool:
    return not world.api.of_namespace(world.namespace_id)


# Services that are being deleted: no webhook sees what is edited in them.


async def test_a_service_being_deleted_lists_anothers_address(victim: World, tenant: World) -> None:
    """By the front door it is refused; edited into a Service that is going it makes no holder either."""
    theirs = address_of(await victim.create())
    wishes = {"addresses": theirs}
    assert "another namespace" in await tenant.refused("front", annotations=wishes)
    own = address_of(await terminating(tenant))
    await tenant.annotate(addresses=theirs)
    await tenant.passed()
    assert tenant.api.holders(theirs) == 1
    assert tenant.api.entries(theirs)["my-service"].namespace_id == victim.namespace_id
    await victim.annotate(retention_period_days="1", addresses=theirs)  # it locks nobody out
    await victim.annotate(retention_period_days="0")

    async def is_left() -> bool:
        return own.partition("/")[0] not in tenant.api.addresses()

    assert await eventually(is_left, 60)  # what is not listed any more is released, going or not
    await remove_finalizer(tenant)
    await tenant.passed()
    assert tenant.api.entries(theirs)["my-service"].active


async def test_a_service_being_deleted_keeps_others_from_a_free_address(victim: World, tenant: World) -> None:
    """What it lists without a record neither shares nor excludes."""
    await terminating(tenant)
    free = f"{victim.free_address()}/32"
    await tenant.annotate(addresses=free)
    await tenant.passed()
    assert address_of(await victim.create(annotations={"addresses": free})) == free
    assert tenant.api.holders(free) == 1


async def test_a_service_being_deleted_names_another_secret(tenant: World) -> None:
    """No Secret is read and none replaced on the word of a Service that is going."""
    address = address_of(await terminating(tenant, annotations=RETAINED))
    await tenant.secret()
    await tenant.annotate(secret="my-secret")
    await tenant.passed()
    assert await tenant.opens(address, await tenant.default_secret())
    assert not await tenant.opens(address, VALUE)


async def test_a_service_being_deleted_keeps_its_address_to_the_end(tenant: World) -> None:
    """What a record backs is held as long as the object is there, and released when it is gone."""
    address = address_of(await terminating(tenant, annotations=RETAINED))
    await tenant.annotate(retention_period_days="30", allow_local_shared_ip="known")
    await tenant.passed()
    entry = tenant.api.entries(address)["my-service"]
    assert (entry.active, entry.retention) == (True, 1)
    await remove_finalizer(tenant)

    async def is_retained() -> bool:
        entry = tenant.api.entries(address)["my-service"]
        return not entry.active and entry.retention == 1

    assert await eventually(is_retained, 60)


async def test_t36_services_edited_while_they_are_being_deleted(
    victim: World, tenant: World, seed: int, tried: Callable[[int], None]
) -> None:
    """T36: 100 edits of Services that are going, by their owners: no address of others gets a second holder,
    none that is free a first, and in the end all of it is free.
    """
    random = Random(seed)
    await tenant.secret()
    theirs = [address_of(await victim.create(f"web-{number}")) for number in range(4)]
    frees = [f"{tenant.free_address()}/32" for _ in range(4)]

    def edit() -> dict[str, str]:
        return random.choice(
            (
                {"addresses": random.choice(theirs), "secret": "default", "zone": "inet"},
                {"addresses": random.choice(frees), "secret": "default", "zone": "inet"},
                {"addresses": random.choice(theirs), "secret": "my-secret"},
                {"addresses": random.choice(theirs), "allow_local_shared_ip": "known"},
                {"secret": random.choice(("my-secret", "default", "nowhere"))},
                {"retention_period_days": random.choice(("0", "7", "30"))},
                {"zone": "other", "addresses": random.choice((*theirs, *frees))},
                {"ip_family": "dual", "addresses": "2001:db8::1," + random.choice(theirs)},
            )
        )

    def check() -> None:
        for number, address in enumerate(theirs):
            entries = tenant.api.entries(address)
            assert list(entries) == [f"web-{number}"], f"I1: {address} has the holders {list(entries)}"
            assert entries[f"web-{number}"].active, f"I3: {address} was taken away"
        taken = set(tenant.api.of_namespace(tenant.namespace_id)) & {one.partition("/")[0] for one in frees}
        assert not taken, f"I1: {taken} was never admitted"

    async def one(name: str) -> None:
        await terminating(tenant, name)
        for _ in range(EDITS):
            await tenant.annotate(name, **edit())
            await asyncio.sleep(random.uniform(0.05, 0.2))
            check()

    for number in range(ROUNDS):
        names = [f"going-{number}-{at}" for at in range(GOING)]
        await asyncio.gather(*map(one, names))
        await tenant.passed()
        check()
        for name in names:
            await remove_finalizer(tenant, name)
        assert await eventually(lambda: is_released(tenant), 60)
    tried(ROUNDS * GOING * EDITS)


# Annotations that no webhook saw: a status may carry them.


async def behind(world: World, annotations: dict[str, str]) -> None:
    """Through a subresource about which no webhook is asked."""
    body = {"metadata": {"annotations": annotations}}
    await world.client.patch(kinds.SERVICE, "my-service", body, world.namespace, subresource="status")


async def test_anothers_address_written_past_the_webhooks(victim: World, tenant: World) -> None:
    """The controller asks what the webhooks would have asked, and says so in an Event."""
    theirs = address_of(await victim.create())
    await tenant.create()
    await behind(tenant, {kinds.ADDRESSES: theirs})

    async def is_told() -> bool:
        return "AddressRefused" in await tenant.events()

    assert await eventually(is_told, 60)
    assert tenant.api.holders(theirs) == 1


OLD = {
    "metallb.universe.tf/loadBalancerIPs": "83.118.168.77",
    "metallb.universe.tf/address-pool": "theirs",
    "metallb.universe.tf/allow-shared-ip": "theirs",
}


async def test_metallb_is_told_of_another_address_by_its_old_annotations(tenant: World) -> None:
    """MetalLB before 0.14.9 reads only these, later ones where the new are missing: they are taken away."""
    body = service("my-service", tenant.namespace)
    body["metadata"]["annotations"] = dict(OLD)
    made = await tenant.client.create(kinds.SERVICE, body)
    tenant.made.append((tenant.namespace, "my-service"))
    assert not OLD.keys() & meta.annotations(made).keys()
    now = await tenant.patch({"metadata": {"annotations": OLD}})
    assert not OLD.keys() & meta.annotations(now).keys()
    assert address_of(now) == address_of(made)


async def test_metallb_is_told_of_another_address_past_the_webhooks(tenant: World) -> None:
    """The controller puts right what MetalLB reads."""
    made = await tenant.create()
    right = {key: meta.annotations(made)[key] for key in kinds.METALLB}
    await behind(tenant, {**OLD, kinds.METALLB_ADDRESSES: "83.118.168.77", kinds.METALLB_POOL: "theirs"})

    async def is_right() -> bool:
        now = meta.annotations(await tenant.get())
        return not OLD.keys() & now.keys() and {key: now.get(key) for key in kinds.METALLB} == right

    assert await eventually(is_right, 60)


# What is too large


async def test_a_sharing_key_that_is_huge(tenant: World) -> None:
    """Refused with its limit, on creation and in an update; what fits is fine."""
    huge = {"allow-local-shared-ip": "k" * 120_000}
    message = await tenant.refused(annotations=huge)
    assert "allow-local-shared-ip" in message
    assert "at most 256 bytes" in message
    assert len(message) < 500
    made = await tenant.create(annotations={"allow-local-shared-ip": "k" * 256})
    assert of(made, "allow-local-shared-ip") == "k" * 256
    assert "at most 256 bytes" in await tenant.not_annotated(allow_local_shared_ip="é" * 129)
    assert "at most 253 bytes" in await tenant.not_annotated(zone="z" * 254, addresses="")


async def test_a_list_of_addresses_that_is_huge(tenant: World) -> None:
    """A list that cannot be right is not read to its end."""
    many = "83.118.168.9," * 15_000
    assert "only one (1) address pr ip-family" in await tenant.refused(annotations={"addresses": many})


# Credentials of the operator


async def test_a_password_in_the_apis_url(cluster: DevCluster) -> None:
    """It would be in every refusal: the operator does not start with one, and does not quote it."""
    url = f"https://berth:{PASSWORD}@127.0.0.1:1/v2"
    words = ("operator", "--dialects", "vitistack", "--kubeconfig", str(cluster.kubeconfig), "--api-url", url)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "berth.cli.main", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode
    assert "--api-token-file" in said.decode()
    assert PASSWORD not in said.decode()
    assert "Traceback" not in said.decode()
