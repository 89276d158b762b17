"""Section A of the contract: which address a Service gets, and from which group."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.support.operator import CRD, built, eventually
from tests.support.vip import G, World, numbered

from berth.devcluster import DevCluster
from berth.dialects.vip import kinds
from berth.dialects.vip.crds import crds
from berth.errors import Invalid
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


async def test_the_first_service_gets_the_lowest_address_in_one_entry(world: World) -> None:
    """P-001, P-002: the seed's own example."""
    await world.group(*G)
    await world.served("web", "1.1.1.1")
    service = await world.get("web")
    assert [entry["ip"] for entry in service["status"]["loadBalancer"]["ingress"]] == ["1.1.1.1"]
    assert meta.finalizers(service) == ["ips.paas.org/finalizer"]
    ip = await world.client.get(kinds.IP, "1.1.1.1")
    assert meta.labels(ip) == {"ipgroup": "1.1.1.0-24"}
    assert meta.annotations(ip)["virtualips.paas.il/owner"] == f"{world.namespace}/web"
    event = await world.event("web", "allocated 1.1.1.1 from 1.1.1.0-24", reason="AddressAllocated")
    assert event["type"] == "Normal"


@pytest.mark.slow
async def test_254_services_get_254_addresses_and_the_next_one_waits(world: World) -> None:
    """P-003, P-004."""
    await world.group(*G)
    names = numbered("s", range(254))
    await asyncio.gather(*(world.service(name, allocateLoadBalancerNodePorts=False) for name in names))
    found = {(await world.addresses(name))[0] for name in names}
    assert found == {f"1.1.1.{last}" for last in range(1, 255)}
    await world.service("late")
    message = await world.pending("late", "no IP could be allocated")
    assert "1.1.1.0-24: all 254 addresses are in use" in message


@pytest.mark.parametrize(
    ("segment", "expected"),
    [
        pytest.param("1.1.1.0/30", [f"1.1.1.{last}" for last in range(4)], id="P-005 nothing is reserved"),
        pytest.param("10.9.8.7/30", ["10.9.8.4"], id="P-006 host bits are dropped"),
    ],
)
async def test_every_address_of_the_segment_is_handed_out_from_the_lowest_up(
    world: World, segment: str, expected: Sequence[str]
) -> None:
    await world.group("a", segment)
    for number, address in enumerate(expected):
        await world.served(f"s{number}", address)


async def test_a_segment_of_one_address_serves_one_service(world: World) -> None:
    """P-007."""
    await world.group("one", "10.0.0.9/32")
    await world.served("first", "10.0.0.9")
    await world.service("second")
    await world.pending("second", "no IP could be allocated")


async def test_a_gap_is_filled_first(world: World) -> None:
    """P-008."""
    await world.group(*G)
    for name, address in (("a", "1.1.1.1"), ("b", "1.1.1.2"), ("c", "1.1.1.3")):
        await world.served(name, address)
    await world.delete("b")
    await world.served("d", "1.1.1.2")


@pytest.mark.parametrize(
    ("excluded", "expected"),
    [
        pytest.param(["9.9.9.9"], "1.1.1.0", id="P-009 outside the segment"),
        pytest.param([" 1.1.1.0 ", "1.1.1.1 "], "1.1.1.2", id="P-010 padded"),
        pytest.param(["1.1.1.0/30"], "1.1.1.0", id="P-010 a CIDR is ignored"),
        pytest.param(["nonsense"], "1.1.1.0", id="no address at all"),
    ],
)
async def test_exclusions_count_if_they_are_addresses(
    world: World, excluded: Sequence[str], expected: str
) -> None:
    await world.group("a", "1.1.1.0/24", excluded)
    await world.served("web", expected)


async def test_an_exclusion_without_effect_is_told_in_the_groups_status(world: World) -> None:
    """P-010."""
    await world.group("a", "1.1.1.0/24", ["1.1.1.0/30"])
    ready = await world.group_condition("a", "True", "Ready")
    assert "'1.1.1.0/30'" in ready["message"]


async def test_the_schema_refuses_what_no_group_can_be(world: World) -> None:
    """P-011, and what upstream accepts: no spec, no CIDR, a name that is no label."""
    for spec in (None, {"segment": "1.1.1.0/24"}, {"segment": "garbage", "excludedIPs": []}):
        with pytest.raises(Invalid):
            await world.client.create(kinds.IPGROUP, built(kinds.IPGROUP, "bad", spec))
    with pytest.raises(Invalid, match="63"):
        await world.group("g" * 64, "1.1.1.0/24")


async def test_a_group_that_excludes_all_it_has_says_so(world: World) -> None:
    await world.group("a", "1.1.1.0/32", ["1.1.1.0"])
    await world.service("web")
    assert "a: all its addresses are excluded" in await world.pending("web", "no IP could be allocated")


async def test_a_full_group_is_passed_over(world: World) -> None:
    """P-012."""
    await world.group("a", "10.1.0.0/32")
    await world.group("b", "10.2.0.0/24")
    await world.served("one", "10.1.0.0")
    await world.served("two", "10.2.0.0")


async def test_groups_are_asked_in_the_order_of_their_names(world: World) -> None:
    """P-013."""
    await world.group("b", "10.2.0.0/24")
    await world.group("a", "10.1.0.0/24")
    await world.group_condition("a", "True", "Ready")  # Services are heard of by another watch
    await world.served("web", "10.1.0.0")


async def test_overlapping_groups_never_give_one_address_twice(world: World) -> None:
    """P-014."""
    await world.group("a", "10.1.0.0/30")
    await world.group("b", "10.1.0.0/29")
    names = numbered("s", range(8))
    await asyncio.gather(*(world.service(name) for name in names))
    assert {(await world.addresses(name))[0] for name in names} == {f"10.1.0.{last}" for last in range(8)}


async def test_bad_groups_stop_nobody_and_say_what_is_wrong(world: World, cluster: DevCluster) -> None:
    """P-015, P-016: stored before the schema knew better."""
    await _without_rules(world, "bad", {"segment": "garbage", "excludedIPs": []})
    await _without_rules(world, "empty", None)
    await world.group(*G)
    await world.served("web", "1.1.1.1")
    bad = await world.group_condition("bad", "False", "InvalidSegment")
    assert bad["message"] == "invalid CIDR address: garbage"
    for name, text in (("bad", "invalid CIDR address: garbage"), ("empty", "spec.segment is missing")):
        await world.event(name, f"no address comes from this group: {text}", "InvalidSegment", "default")


async def _without_rules(world: World, name: str, spec: dict[str, object] | None) -> None:
    """Store an object as an operator of old would have allowed it."""
    wanted = next(crd for crd in crds() if crd["spec"]["names"]["plural"] == "ipgroups")
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    present = await world.client.get(CRD, "ipgroups.paas.org")
    versions = [{**wanted["spec"]["versions"][0], "schema": {"openAPIV3Schema": loose}}]
    await world.client.patch(CRD, "ipgroups.paas.org", {"spec": {"versions": versions}})

    async def stored() -> bool:
        try:
            await world.client.create(kinds.IPGROUP, built(kinds.IPGROUP, name, spec))
        except Invalid as error:
            raise AssertionError(error) from error
        return True

    await eventually(stored)
    strict = {"spec": {"versions": present["spec"]["versions"]}}
    await world.client.patch(CRD, "ipgroups.paas.org", strict)

    async def refused() -> bool:
        try:
            await world.client.create(kinds.IPGROUP, built(kinds.IPGROUP, "probe"), dry_run=True)
        except Invalid:
            return True
        return False

    await eventually(refused)


async def test_an_ipv4_service_gets_nothing_from_an_ipv6_group(world: World) -> None:
    """P-017."""
    await world.group("six", "2001:db8::/64")
    await world.service("web")
    message = await world.pending("web", "no IP could be allocated")
    assert "six: has no IPv4 addresses" in message


async def test_a_waiting_service_is_served_when_a_group_appears(world: World) -> None:
    """P-018, P-019."""
    await world.service("web")
    assert await world.pending("web", "no IP could be allocated") == (
        "no IP could be allocated (there is no IPGroup)"
    )
    await world.group(*G)
    await world.addresses("web", "1.1.1.1")
    assert meta.condition(await world.get("web"), kinds.CONDITION) is None


async def test_the_examples_of_upstream_serve_eleven_of_twelve(world: World) -> None:
    """P-020."""
    for third, usable in ((1, 5), (2, 4), (3, 2)):
        excluded = [f"1.1.{third}.0", *(f"1.1.{third}.{last}" for last in range(usable + 1, 8))]
        await world.group(f"1.1.{third}.0-29", f"1.1.{third}.0/29", excluded)
    names = numbered("s", range(12))
    await asyncio.gather(*(world.service(name) for name in names))

    async def settled() -> bool:
        shown = [await world.ingress(name) for name in names]
        waiting = [meta.condition(await world.get(name), kinds.CONDITION) for name in names]
        return sum(map(bool, shown)) == 11 and sum(map(bool, waiting)) == 1

    await eventually(settled)


async def test_every_namespace_draws_from_every_group(world: World) -> None:
    """P-021."""
    await world.group(*G)
    other = await world.more_namespace()
    await world.served("web", "1.1.1.1")
    await world.served("web", "1.1.1.2", namespace=other)


async def test_annotations_and_labels_of_others_have_no_influence(world: World) -> None:
    """P-022."""
    await world.group(*G)
    await world.served("web", "1.1.1.1", annotations={"a/b": "1.1.1.9"}, labels={"ipgroup": "other"})


@pytest.mark.parametrize("kind", ["ClusterIP", "NodePort", "ExternalName"])
async def test_other_services_are_not_touched(world: World, kind: str) -> None:
    """P-023."""
    more = {"externalName": "example.org"} if kind == "ExternalName" else {}
    made = await world.service("other", kind, **more)
    await world.group(*G)
    await world.served("web", "1.1.1.1")
    assert (await world.get("other"))["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_service_of_another_class_is_not_touched(world: World) -> None:
    """P-024."""
    made = await world.service("other", loadBalancerClass="x/y")
    await world.group(*G)
    await world.served("web", "1.1.1.1")
    assert (await world.get("other"))["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_any_port_is_served(world: World) -> None:
    """P-025."""
    await world.group(*G)
    ports = [{"name": f"p{port}", "port": port, "protocol": "TCP"} for port in (10250, 111)]
    await world.served("web", "1.1.1.1", ports=ports)
