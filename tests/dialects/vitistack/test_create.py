"""Creating Services."""

from __future__ import annotations

import asyncio
import base64

import pytest
from tests.support import metallb
from tests.support.operator import eventually
from tests.support.vitistack import SYSTEM, VALUE, World, address_of, of, service

from berth.dialects.vitistack import kinds
from berth.errors import Invalid, StatusError
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


async def test_a_plain_service_gets_all_annotations_and_an_address(world: World) -> None:
    """V-001, V-002, V-003, V-114: nothing but ports and a type is asked for."""
    made = await world.create()
    keys = {key for key in meta.annotations(made) if key.startswith(kinds.PREFIX)}
    assert keys == {
        kinds.ADDRESSES, kinds.SHARING_KEY, kinds.DENY, kinds.FAMILY, kinds.RETENTION, kinds.SECRET_NAME,
        kinds.ZONE,
    }  # fmt: skip
    assert of(made, "ip-family") == "ipv4"
    assert of(made, "retention-period-days") == "0"
    assert of(made, "deny-external-cleanup") == "false"
    assert of(made, "secret") == "default"
    assert of(made, "zone") == "inet"
    assert of(made, "allow-local-shared-ip").startswith("pre-shared-key-")
    address = address_of(made)
    assert address.endswith("/32")
    annotations = meta.annotations(made)
    assert annotations[kinds.METALLB_POOL] == "inet"
    assert annotations[kinds.METALLB_ADDRESSES] == address.partition("/")[0]
    assert annotations[kinds.METALLB_KEY] == of(made, "allow-local-shared-ip")
    assert made["spec"]["ipFamilyPolicy"] == "SingleStack"
    assert world.api.entries(address)["my-service"].active
    pool = await world.client.get(kinds.POOL, "inet", metallb.NAMESPACE)
    assert pool["spec"]["autoAssign"] is False
    assert address in pool["spec"]["addresses"]
    assert not meta.finalizers(await world.get())

    async def is_assigned() -> bool:
        shown = (await world.get())["status"]["loadBalancer"].get("ingress") or []
        return [one["ip"] for one in shown] == [address.partition("/")[0]]

    assert await eventually(is_assigned, 60)


async def test_the_default_secret_is_made_once_and_used(world: World) -> None:
    """V-004, V-005: Opaque, immutable, 32 letters and digits; never changed afterwards."""
    await world.create("first")
    found = await world.client.get(kinds.SECRET, "default", SYSTEM)
    value = base64.b64decode(found["data"]["secret"]).decode()
    assert found["type"] == "Opaque"
    assert found["immutable"] is True
    assert len(value) == 32
    assert value.isalnum()
    await world.create("second")
    assert await world.opens(address_of(await world.get("second")), value, "second")
    again = await world.client.get(kinds.SECRET, "default", SYSTEM)
    assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


@pytest.mark.parametrize("kind", ["ClusterIP", "NodePort", "ExternalName"])
async def test_other_types_are_not_touched(world: World, kind: str) -> None:
    """V-007"""
    before = world.history()
    more = {"externalName": "a.example"} if kind == "ExternalName" else {}
    made = await world.create("other", type=kind, **more)
    assert not meta.annotations(made)
    assert world.history() == before


async def test_excluded_namespaces_are_not_touched(world: World) -> None:
    """V-008"""
    made = await world.create("untouched", namespace="kube-system")
    assert not meta.annotations(made)


async def test_what_kubernetes_refuses_is_refused_before_anything_is_spent(world: World) -> None:
    """V-009: with Kubernetes' own code and message."""
    before = world.history()
    error = await world.refusal(ports=[])
    assert isinstance(error, Invalid)
    assert "spec.ports: Required value" in error.message
    assert world.history() == before


async def test_a_server_side_dry_run_has_no_effect(world: World) -> None:
    """V-010: admitted, no annotation, no API call, no record, no pool change."""
    before = world.history(), await world.records(), await world.pool(), await secrets(world)
    made = await world.client.create(kinds.SERVICE, service("dry", world.namespace), dry_run=True)
    assert not meta.annotations(made)
    assert (world.history(), await world.records(), await world.pool(), await secrets(world)) == before


async def secrets(world: World) -> set[str]:
    return {meta.uid(one) for one in (await world.client.list(kinds.SECRET)).items}


@pytest.mark.parametrize("mask", ["/32", ""])
async def test_a_named_free_address_is_given(world: World, mask: str) -> None:
    """V-011 with mask, V-012 without."""
    address = world.free_address()
    made = await world.create(annotations={"addresses": address + mask, "zone": "inet"})
    assert address_of(made) == address + mask
    assert world.api.entries(address)["my-service"].active
    assert await world.pooled(f"{address}/32")


async def test_an_address_of_another_secret_is_refused(world: World) -> None:
    """V-013, V-094"""
    address = world.free_address()
    await world.secret()
    await world.create("owner", annotations={"addresses": address, "secret": "my-secret"})
    message = await world.refused(annotations={"addresses": address})
    start = "validation create failed for service my-service, Please verify f.ex secret"
    assert message.startswith(start)
    assert list(world.api.entries(address)) == ["owner"]


async def test_an_address_outside_the_zone_is_refused(world: World) -> None:
    """V-014: nothing is registered, no record stays."""
    message = await world.refused(annotations={"addresses": "192.0.2.1"})
    assert message.startswith("validation create failed for service my-service, Please verify f.ex secret")
    assert "not valid for the provided zone" in message
    assert world.history() == []
    assert not [one for one in await world.records() if one["data"]["address"] == "192.0.2.1"]


BAD = [
    ("V-015", {"addresses": "foo"}, "invalid ip-address detected for Service: my-service: foo"),
    (
        "V-016",
        {"addresses": "83.118.168.10,83.118.168.11"},
        "metallb supports only one (1) address pr ip-family",
    ),
    (
        "V-017",
        {"ip-family": "both"},
        "illegal ip-address family illegial specified ip-address family: both , "
        "Valid Choices: ipv4,ipv6 & dual",
    ),
    (
        "V-023",
        {"addresses": "2a05:1234::77", "ip-family": "ipv4"},
        "the family of address 2a05:1234::77 does not fit",
    ),
    ("V-029", {"retention-period-days": "31"}, "retention period cannot be more than 30 days"),
    ("V-030", {"retention-period-days": "abc"}, "not able to convert byte retentionPeriodDays to Integer"),
    (
        "V-031",
        {"deny-external-cleanup": "maybe"},
        "not able to convert string denyExternalCleanup to Bool for Service my-service",
    ),
    ("zone", {"zone": ""}, "annotation ipam.vitistack.io/zone of Service my-service is empty"),
    ("secret", {"secret": ""}, "annotation ipam.vitistack.io/secret of Service my-service is empty"),
]


@pytest.mark.parametrize(("annotations", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
async def test_a_bad_value_is_refused_in_words(
    world: World, annotations: dict[str, str], message: str
) -> None:
    before = world.history()
    assert message in await world.refused(annotations=annotations)
    assert world.history() == before


async def test_an_ipv6_service_gets_an_ipv6_address(world: World) -> None:
    """V-018, D-17: the families of the spec follow when they are not given."""
    made = await world.create(annotations={"ip-family": "ipv6"}, ipFamilies=["IPv6"])
    assert address_of(made).endswith("/128")
    assert made["spec"]["ipFamilyPolicy"] == "SingleStack"
    other = await world.create("other", annotations={"ip-family": "ipv6"})
    assert other["spec"]["ipFamilies"] == ["IPv6"]
    message = await world.refused("third", annotations={"ip-family": "ipv6"}, ipFamilies=["IPv4"])
    assert "starts with IPv4" in message


async def test_a_dual_service_gets_one_of_each(world: World) -> None:
    """V-019, V-022: IPv6 in front; a named IPv4 is completed."""
    made = await world.create(annotations={"ip-family": "dual"})
    six, four = address_of(made).split(",")
    assert six.endswith("/128")
    assert four.endswith("/32")
    assert made["spec"]["ipFamilyPolicy"] == "RequireDualStack"
    assert await world.pooled(six)
    assert await world.pooled(four)
    address = world.free_address()
    other = await world.create("other", annotations={"ip-family": "dual", "addresses": address})
    assert address_of(other).split(",")[1] == f"{address}/32"


async def test_the_spec_says_the_family_when_the_annotation_does_not(world: World) -> None:
    """2.9: RequireDualStack means dual, exactly [IPv6] means ipv6."""
    dual = await world.create("both", ipFamilyPolicy="RequireDualStack")
    six = await world.create("six", ipFamilies=["IPv6"])
    assert of(dual, "ip-family") == "dual"
    assert of(six, "ip-family") == "ipv6"


async def test_a_zone_without_ipv6_refuses_dual_and_keeps_nothing(world: World) -> None:
    """V-020, V-148"""
    message = await world.refused(annotations={"ip-family": "dual", "zone": "hnet-private"})
    assert message.endswith("no prefixes found for zone hnet-private with IP family ipv6")
    assert message.startswith("failed to request IP for address-family ipv6 for Service my-service: ")

    assert "registered" in world.history()  # the IPv4 address was reserved

    async def is_free() -> bool:
        return not world.api.of_namespace(world.namespace_id)

    assert await eventually(is_free, 60)


async def test_a_users_secret_is_read_in_the_services_namespace(world: World) -> None:
    """V-024, V-025, V-026, V-027, V-028"""
    await world.secret(namespace="default", name="my-secret")  # of another namespace, which does not count
    gone = await world.refused(annotations={"secret": "my-secret"})
    where = f"my-secret in namespace {world.namespace}"
    assert gone == f"failed to get custom secret. Error: failed to get custom secret {where}"
    await world.secret("keyless", data={})
    assert (await world.refused(annotations={"secret": "keyless"})).endswith("does not contain 'secret' key")
    data = {"username": "", "secret": base64.b64encode(VALUE.encode()).decode()}
    await world.secret("basic", type="kubernetes.io/basic-auth", data=data)
    assert (await world.refused(annotations={"secret": "basic"})).endswith("is not of type Opaque")
    await world.secret("short", "1234567")
    assert "8 to 64" in await world.refused(annotations={"secret": "short"})
    assert world.history() == []
    await world.secret()
    made = await world.create(annotations={"secret": "my-secret"})
    assert world.api.entries(address_of(made))["my-service"].active
    assert await world.opens(address_of(made), VALUE)
    assert not await world.opens(address_of(made), "another-password")
    await world.client.delete(kinds.SECRET, "my-secret", "default")


@pytest.mark.parametrize("word", ["T", "1", "true"])
async def test_boolean_words_count(world: World, word: str) -> None:
    """V-032"""
    made = await world.create(annotations={"deny-external-cleanup": word})
    assert world.api.entries(address_of(made))["my-service"].deny
    assert of(made, "deny-external-cleanup") == word


async def test_an_unknown_zone_is_refused(world: World) -> None:
    """V-033"""
    message = await world.refused(annotations={"zone": "mars"})
    assert "invalid zone 'mars', must be one of: 'hnet-private', 'hnet-public', 'inet'" in message


async def test_without_metallb_nothing_is_asked_for(world: World) -> None:
    """V-035, V-036: refused without it; the Helm chart's labels count too."""
    await metallb.stop_pod(world.client)
    words = "metallb operator is not available. Please make sure Metallb is installed and running"

    async def is_refused() -> bool:
        try:
            await world.create("early")
        except StatusError as error:
            return words in str(error)
        await world.delete("early")
        return False

    async def is_free() -> bool:
        return not world.api.of_namespace(world.namespace_id)

    try:
        assert await eventually(is_refused, 60)
        assert await eventually(is_free, 60)
        before = world.history()
        assert words in await world.refused("early")
        assert world.history() == before
        await metallb.start_pod(world.client, metallb.HELM, "helm")
        assert address_of(await world.create("helm"))
    finally:
        await metallb.stop_pod(world.client, "helm")
        await metallb.start_pod(world.client)


async def test_a_generated_name_is_the_entrys_name(world: World) -> None:
    """V-040"""
    made = await world.create(generate="web-")
    name = made["metadata"]["name"]
    assert name.startswith("web-")
    assert list(world.api.entries(address_of(made))) == [name]


async def test_a_chosen_cluster_ip_is_kept(world: World) -> None:
    """V-041"""
    taken = await world.create("scout", type="ClusterIP")
    chosen = taken["spec"]["clusterIP"]
    await world.delete("scout")
    made = await world.create(clusterIP=chosen)
    assert made["spec"]["clusterIP"] == chosen


async def test_another_load_balancer_class_is_left_alone(world: World) -> None:
    """V-042"""
    made = await world.create(loadBalancerClass="other.example/lb")
    assert not meta.annotations(made)


async def test_load_balancer_ip_names_an_address(world: World) -> None:
    """V-043: taken as the wish and cleared; a contradiction is refused."""
    address = world.free_address()
    made = await world.create(loadBalancerIP=address)
    assert address_of(made) == address
    assert "loadBalancerIP" not in made["spec"]
    other = world.free_address()
    message = await world.refused("other", loadBalancerIP=other, annotations={"addresses": address})
    assert "differ" in message


async def test_an_empty_sharing_key_stays_empty(world: World) -> None:
    """V-044"""
    made = await world.create(annotations={"allow-local-shared-ip": ""})
    assert meta.annotations(made)[kinds.SHARING_KEY] == ""
    assert meta.annotations(made)[kinds.METALLB_KEY] == ""


async def test_thirty_at_once_share_one_pool_without_conflicts(world: World) -> None:
    """V-118, V-115: each has its own address, and each is in the pool once."""
    zone = {"zone": "hnet-public"}
    made = await asyncio.gather(*(world.create(f"web-{number}", annotations=zone) for number in range(30)))
    addresses = {address_of(one) for one in made}
    pool = await world.pool("hnet-public") or []
    assert len(addresses) == 30
    assert addresses <= set(pool)
    assert len(pool) == len(set(pool))


async def test_events_tell_what_was_allocated(world: World) -> None:
    """Contract 2.12"""
    await world.create()

    async def is_told() -> bool:
        return "AddressAllocated" in await world.events()

    assert await eventually(is_told, 60)


async def test_records_hold_no_secret(world: World) -> None:
    """T28 for what the operator writes: the value is in Secrets only."""
    await world.secret(value="canary-value-1234")
    await world.create(annotations={"secret": "my-secret"})
    lying = (await world.client.list(kinds.CONFIG_MAP, SYSTEM)).items
    assert world.namespace in str(lying)
    for value in ("canary-value-1234", base64.b64encode(b"canary-value-1234").decode()):
        assert value not in str(lying)
