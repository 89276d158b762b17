"""Contract 6.3: which address a claim gets, and what is written with it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.metal3 import SEED, SIX, A, B, World, claim, cluster_object, pool, ranged, waits
from tests.support.operator import eventually

from berth.dialects.metal3 import kinds
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]

EXHAUSTED = "Exhausted IP Pools"


async def seeded(world: World) -> World:
    await world.create(cluster_object("cluster1"), pool("pool", SEED))
    return world


async def entries(world: World, *given: dict[str, Any], **spec: Any) -> World:
    await world.create(pool("pool", ranged(*given, **spec)))
    return world


def given_with(address: dict[str, Any]) -> tuple[Any, ...]:
    """What the address object says beside its references."""
    spec = address["spec"]
    return spec["address"], spec.get("prefix"), spec.get("gateway"), spec.get("dnsServers")


async def test_the_seeds_pool_serves_its_first_claim_as_shown(world: World) -> None:
    """M-044: lowest address of the first entry, with that entry's prefix and gateway."""
    await seeded(world)
    served = await world.ask("c1")
    assert served["metadata"]["name"] == "test1-prov-192-168-0-10"
    assert given_with(served) == ("192.168.0.10", 25, "192.168.0.1", None)
    status = (await world.get(kinds.CLAIM, "c1"))["status"]
    assert status["address"] == {"name": "test1-prov-192-168-0-10", "namespace": world.namespace}
    assert set(status) == {"address", "conditions"}  # the second is ours, beside what upstream shows


async def test_a_reserved_address_is_passed_over(world: World) -> None:
    """M-045: .12 is claim1's."""
    await seeded(world)
    assert await world.ask_text("c1", "c2", "c3") == ["192.168.0.10", "192.168.0.11", "192.168.0.13"]


async def test_the_second_entry_begins_after_the_literal_address_of_its_subnet(world: World) -> None:
    """M-046, M-047: 20 ordinary claims fill the first entry; host bits of /26 count; 210 in all."""
    await seeded(world)
    await world.ask_text(*(f"c{i:02}" for i in range(20)))
    assert given_with(await world.ask("c21")) == ("192.168.1.2", 24, "192.168.1.1", None)

    async def counted() -> bool:
        usage = (await world.get(kinds.POOL, "pool"))["status"]["ipAddresses"]
        assert usage == {"total": 21 + 62 + 127, "used": 21, "free": 209 - 21, "reserved": 1, "outOfRange": 0}
        return True

    await eventually(counted)


async def test_an_address_object_names_its_pool_and_its_claim(world: World) -> None:
    """M-048: finalizer, owners in order and without controller flags, references with name and namespace."""
    await world.create(pool("pool", A))
    served = await world.ask("c1")
    about = served["metadata"]
    assert about["finalizers"] == ["ipaddress.ipam.metal3.io"]
    the_pool, the_claim = await world.get(kinds.POOL, "pool"), await world.get(kinds.CLAIM, "c1")
    assert about["ownerReferences"] == [
        {
            "apiVersion": "ipam.metal3.io/v1alpha1",
            "kind": "IPPool",
            "name": "pool",
            "uid": meta.uid(the_pool),
        },
        {
            "apiVersion": "ipam.metal3.io/v1alpha1",
            "kind": "IPClaim",
            "name": "c1",
            "uid": meta.uid(the_claim),
        },
    ]
    assert served["spec"]["pool"] == {"name": "pool", "namespace": world.namespace}
    assert served["spec"]["claim"] == {"name": "c1", "namespace": world.namespace}


async def test_labels_are_copied_once(world: World) -> None:
    """M-049: the claim's labels, nothing added; later changes are not copied."""
    await world.create(pool("pool", A))
    served = await world.ask("c1", labels={"x": "1"})
    assert served["metadata"]["labels"] == {"x": "1"}
    assert "annotations" not in served["metadata"]
    await world.edit(kinds.CLAIM, "c1", {"metadata": {"labels": {"x": "2"}}})
    await world.passed()
    assert (await world.address_of("c1"))["metadata"]["labels"] == {"x": "1"}


async def test_pool_and_claim_are_held_and_the_pool_lists_the_address(world: World) -> None:
    """M-050: finalizers, indexes, lastUpdated."""
    await world.create(pool("pool", A))
    await world.ask("c1")
    await world.shows({"c1": "10.0.0.10"})
    assert meta.finalizers(await world.get(kinds.CLAIM, "c1")) == ["ipclaim.ipam.metal3.io"]
    stored = await world.get(kinds.POOL, "pool")
    assert meta.finalizers(stored) == ["ippool.ipam.metal3.io"]
    assert stored["status"]["lastUpdated"] >= stored["metadata"]["creationTimestamp"]


async def test_the_lowest_free_address_comes_first(world: World) -> None:
    """M-051: .10 came free, .10 is given."""
    await world.create(pool("pool", A))
    await world.ask_text("c1", "c2")
    await world.remove(kinds.CLAIM, "c1")
    assert await world.ask_text("c3") == ["10.0.0.10"]


async def test_an_entry_overrides_what_the_pool_says(world: World) -> None:
    """M-052: prefix, gateway, DNS servers; a list is replaced, never merged."""
    await world.create(pool("pool", B))
    assert given_with(await world.ask("c1")) == ("10.0.1.10", 24, "10.0.0.1", ["8.8.8.8", "8.8.4.4"])
    assert given_with(await world.ask("c2")) == ("10.0.2.10", 16, "10.0.2.1", ["1.1.1.1"])


async def test_what_is_set_nowhere_is_absent(world: World) -> None:
    """M-053."""
    await entries(world, {"start": "10.0.0.1", "end": "10.0.0.2"})
    assert set((await world.ask("c1"))["spec"]) == {"address", "claim", "pool"}


async def test_prefix_0_of_an_entry_means_unset(world: World) -> None:
    """M-054."""
    await entries(world, {"start": "10.0.0.1", "end": "10.0.0.2", "prefix": 0}, prefix=24)
    assert (await world.ask("c1"))["spec"]["prefix"] == 24


FOUND: list[Any] = [
    pytest.param([{"subnet": "192.168.0.0/30"}], ["192.168.0.1", "192.168.0.2", "192.168.0.3"], id="M-055"),
    pytest.param([{"subnet": "10.1.1.1/32"}], [], id="M-057"),
    pytest.param(
        [{"start": "10.0.0.250", "subnet": "10.0.0.0/24"}],
        [f"10.0.0.{last}" for last in range(250, 256)],
        id="M-058",
    ),
    pytest.param([{"start": "10.0.1.5", "subnet": "10.0.0.0/24"}], [], id="M-059"),
    pytest.param([{"subnet": "10.0.0.0/24", "end": "10.0.0.2"}], ["10.0.0.1", "10.0.0.2"], id="M-060"),
    pytest.param([{"start": "255.255.255.254"}], ["255.255.255.254", "255.255.255.255"], id="M-061"),
    pytest.param([], [], id="M-070"),
]


@pytest.mark.parametrize(("given", "addresses"), FOUND)
async def test_addresses_of_an_entry_in_order_until_it_is_exhausted(
    world: World, given: list[dict[str, Any]], addresses: list[str]
) -> None:
    await entries(world, *given)
    names = [f"c{i}" for i in range(len(addresses))]
    assert await world.ask_text(*names) == addresses
    assert await world.refused("last") == EXHAUSTED


async def test_host_bits_of_a_subnet_count(world: World) -> None:
    """M-056: 192.168.1.10/24 begins at .11."""
    await entries(world, {"subnet": "192.168.1.10/24"})
    assert await world.ask_text("c1") == ["192.168.1.11"]


async def test_the_gateway_is_handed_out_like_any_other(world: World) -> None:
    """M-062: kept on purpose, clients rely on the enumeration."""
    await entries(world, {"subnet": "10.0.0.0/24"}, gateway="10.0.0.1")
    assert given_with(await world.ask("c1")) == ("10.0.0.1", None, "10.0.0.1", None)


async def test_where_entries_overlap_the_earlier_one_owns_the_address(world: World) -> None:
    """M-063: no address twice."""
    first = {"start": "10.0.0.1", "end": "10.0.0.2", "gateway": "10.0.0.100"}
    second = {"start": "10.0.0.2", "end": "10.0.0.3", "gateway": "10.0.0.200"}
    await entries(world, first, second)
    got = [given_with(await world.ask(name))[:3:2] for name in ("c1", "c2", "c3")]
    assert got == [("10.0.0.1", "10.0.0.100"), ("10.0.0.2", "10.0.0.100"), ("10.0.0.3", "10.0.0.200")]


async def test_ipv6_works_the_same(world: World) -> None:
    """M-064."""
    await world.create(pool("pool", SIX))
    served = await world.ask("c1")
    assert served["metadata"]["name"] == "six-2001-db8--1"
    assert given_with(served) == ("2001:db8::1", 64, "2001:db8::ffff", None)


async def test_addresses_are_written_in_canonical_text(world: World) -> None:
    """M-065."""
    await entries(world, {"start": "2001:DB8::00FF"})
    assert await world.ask_text("c1") == ["2001:db8::ff"]


async def test_trailing_dashes_are_cut_from_a_name(world: World) -> None:
    """M-066."""
    await entries(world, {"start": "2001:db8::", "end": "2001:db8::1"}, name_prefix="z")
    names = [(await world.ask(name))["metadata"]["name"] for name in ("c1", "c2")]
    assert names == ["z-2001-db8", "z-2001-db8--1"]


async def test_random_finds_the_one_free_address(world: World) -> None:
    """M-067."""
    await entries(world, {"start": "192.168.0.10", "end": "192.168.0.14"}, allocationStrategy="random")
    for last in (10, 11, 13, 14):
        await world.ask(f"c{last}", wants=f"192.168.0.{last}")
    assert await world.ask_text("c12") == ["192.168.0.12"]


async def test_random_gives_every_address_once(world: World) -> None:
    """M-068: eleven of eleven; a twelfth is refused."""
    await entries(world, {"start": "10.0.0.10", "end": "10.0.0.20"}, allocationStrategy="random")
    got = await world.ask_text(*(f"c{i}" for i in range(11)))
    assert sorted(got) == [f"10.0.0.{last}" for last in range(10, 21)]
    assert await world.refused("last") == EXHAUSTED


async def test_random_fills_the_first_entry_before_the_second(world: World) -> None:
    """M-069."""
    first, second = {"start": "10.0.9.1", "end": "10.0.9.4"}, {"start": "10.0.1.1", "end": "10.0.1.9"}
    await entries(world, first, second, allocationStrategy="random")
    got = await world.ask_text(*(f"c{i}" for i in range(5)))
    assert all(text.startswith("10.0.9.") for text in got[:4])
    assert got[4].startswith("10.0.1.")


async def test_a_claim_may_come_before_its_pool(world: World) -> None:
    """M-071: and M-034, it is accepted without one."""
    await world.create(claim("c1"))
    await world.passed()
    await waits(world, "c1", "PoolNotFound")
    await world.create(pool("pool", A))
    assert (await world.address_of("c1"))["spec"]["address"] == "10.0.0.10"


async def test_claims_that_waited_together_are_served_by_age(world: World) -> None:
    """X-15: creation time, then name; within one second the name decides."""
    names = [f"c{i}" for i in range(3)]
    for name in names:
        await world.create(claim(name))
    await world.create(pool("pool", A))
    got = [(await world.address_of(name))["spec"]["address"] for name in names]
    assert got == ["10.0.0.10", "10.0.0.11", "10.0.0.12"]


@pytest.mark.parametrize("local_too", [False, True], ids=["M-073", "M-074"])
async def test_a_claim_is_served_from_its_own_namespace_only(world: World, local_too: bool) -> None:
    """M-073, M-074: the claim says why, whether or not a pool of that name is here too."""
    if local_too:
        await world.create(pool("pool", A))
    asking = claim("c1")
    asking["spec"]["pool"]["namespace"] = "elsewhere"
    await world.create(asking)
    assert await world.error_of("c1") == (
        "IPPool elsewhere/pool is in another namespace; a claim is served from its own only"
    )
    assert await world.list(kinds.ADDRESS) == []


async def test_naming_ones_own_namespace_is_fine(world: World) -> None:
    """The seed's own example does."""
    await world.create(pool("pool", A))
    asking = claim("c1")
    asking["spec"]["pool"]["namespace"] = world.namespace
    await world.create(asking)
    assert (await world.address_of("c1"))["spec"]["address"] == "10.0.0.10"


async def test_an_address_deep_in_a_huge_subnet_is_found_at_once(world: World) -> None:
    """X-25: no scan, whatever the size."""
    spec = ranged({"subnet": "2001:db8::/32"}, preAllocations={"deep": "2001:db8:ffff::1"})
    await world.create(pool("pool", spec))
    assert await world.ask_text("deep") == ["2001:db8:ffff::1"]
    far = await world.ask("far", wants="2001:db8:ffff:ffff:ffff:ffff:ffff:ffff")
    assert far["spec"]["address"] == "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"
    assert await world.refused("out", wants="2001:db9::1") == EXHAUSTED
