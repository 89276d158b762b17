"""Contract 6.1 and 6.2 as a client sees them: kubectl's server says no, or takes it.

Every row is asked twice: with our webhook registered, and with nobody there but the CRDs. What the schema and
CEL can say holds either way; the rest (marked `WEBHOOK`) needs the webhook, and the controller copes without.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support.cluster import Kubectl, KubectlFailed
from tests.support.metal3 import PAUSED, SEED, A, World, address, claim, cluster_object, pool, ranged
from tests.support.operator import admin, crds_of, install, running

from berth.devcluster import DevCluster, ports
from berth.dialects.metal3 import kinds
from berth.dialects.metal3.translate import LONGEST_NAME_PREFIX
from berth.errors import Invalid
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]

Object = dict[str, Any]
WEBHOOK = True
SCHEMA = False
ANNOTATION = "metadata.annotations.ipAddress"
NOT_AN_ADDRESS = "is not a valid IP address"
NO_ENTRY = "pool entry must specify at least one of start, end, or subnet"


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["webhook", "schema alone"])
async def door(request: pytest.FixtureRequest, cluster: DevCluster) -> AsyncIterator[tuple[World, bool]]:
    """A namespace to ask in, and whether our webhook answers."""
    if request.param == "webhook":
        port = ports.free(1)[0]
        url = f"https://127.0.0.1:{port}"
        async with running(cluster, dialects=("metal3",), webhook_port=port, webhook_url=url) as started:
            yield World(started.client, "default"), True
    else:
        async with admin(cluster) as client:
            await install(client, crds_of("metal3"))
            yield World(client, "default"), False


async def answer(world: World, obj: Object) -> str:
    """What the API server says to a dry run; nothing if it takes it."""
    try:
        await world.client.create(_resource(obj), obj, world.namespace, dry_run=True)
    except Invalid as error:
        return error.message
    return ""


def _resource(obj: Object) -> Any:
    return {"IPPool": kinds.POOL, "IPClaim": kinds.CLAIM, "IPAddress": kinds.ADDRESS}[obj["kind"]]


NEW: list[Any] = [
    pytest.param(pool("p", {"pools": []}), ["spec.namePrefix", "Required value"], SCHEMA, id="M-002"),
    pytest.param(pool("p", {"namePrefix": ""}), ["spec.namePrefix", "at least 1 chars"], SCHEMA, id="M-003"),
    pytest.param(pool("p", {"namePrefix": "a"}), [], SCHEMA, id="M-004"),
    pytest.param(pool("p", ranged({"prefix": 24})), ["spec.pools[0]", NO_ENTRY], SCHEMA, id="M-005"),
    pytest.param(pool("p", ranged({"start": "10.0.0.1"})), [], SCHEMA, id="M-006"),
    pytest.param(pool("p", ranged({"subnet": "10.0.0.0/24"})), [], SCHEMA, id="M-007"),
    pytest.param(pool("p", ranged({"end": "10.0.0.9"})), ["spec.pools[0]", "end alone"], SCHEMA, id="M-008"),
    pytest.param(
        pool("p", ranged({"start": "192.168.0.149", "end": "192.168.0.140"})),
        ["spec.pools[0]", "end IP 192.168.0.140 is before start IP 192.168.0.149"],
        WEBHOOK,
        id="M-009",
    ),
    pytest.param(pool("p", ranged({"start": "10.0.0.1", "end": "10.0.0.1"})), [], SCHEMA, id="M-010"),
    pytest.param(pool("p", {**A, "gateway": "256.1.1.1"}), ["spec.gateway"], SCHEMA, id="M-011 gateway"),
    pytest.param(pool("p", {**A, "dnsServers": ["foo"]}), ["spec.dnsServers[0]"], SCHEMA, id="M-011 dns"),
    pytest.param(pool("p", ranged({"subnet": "x/24"})), ["spec.pools[0].subnet"], SCHEMA, id="M-011 subnet"),
    pytest.param(
        pool("p", {**A, "prefix": 129}), ["spec.prefix", "less than or equal to 128"], SCHEMA, id="M-012"
    ),
    pytest.param(pool("p", {**A, "prefix": -1}), ["spec.prefix"], SCHEMA, id="M-013"),
    pytest.param(pool("p", {**A, "prefix": 64}), ["spec.prefix", "IPv4 address"], WEBHOOK, id="M-014"),
    pytest.param(
        pool("p", ranged({"start": "10.0.0.1", "prefix": 64})),
        ["spec.pools[0].prefix", "IPv4 address"],
        SCHEMA,
        id="M-014 entry",
    ),
    pytest.param(
        pool("p", {**A, "allocationStrategy": "fifo"}), ["spec.allocationStrategy"], SCHEMA, id="M-015"
    ),
    pytest.param(
        pool("p", ranged({"start": "10.0.0.1"}, allocationStrategy="random")),
        [
            "spec.pools[0]",
            'cannot be used with allocationStrategy "random": '
            "pool with Start requires End or Subnet to determine size",
        ],
        WEBHOOK,
        id="M-016",
    ),
    pytest.param(
        pool("p", ranged({"subnet": "2001:db8::/64"}, allocationStrategy="random")),
        ["pool size exceeds int range"],
        WEBHOOK,
        id="M-017",
    ),
    pytest.param(
        pool("p", ranged({"subnet": "2001:db8::/65"}, allocationStrategy="random")), [], SCHEMA, id="M-018"
    ),
    pytest.param(pool("p", ranged({"subnet": "2001:db8::/32"})), [], SCHEMA, id="M-019"),
    pytest.param(
        pool("p", {**SEED, "preAllocations": {"a": "192.168.0.12", "b": "192.168.0.12"}}),
        ["spec.preAllocations.", "IP address is already pre-allocated to claim"],
        WEBHOOK,
        id="M-020",
    ),
    pytest.param(
        pool(
            "p",
            ranged(
                {"start": "2001:db8::1"}, preAllocations={"a": "2001:db8::1", "b": "2001:0db8:0:0:0:0:0:1"}
            ),
        ),
        ["spec.preAllocations.", "IP address is already pre-allocated to claim"],
        WEBHOOK,
        id="M-021",
    ),
    pytest.param(
        pool("p", ranged({"subnet": "192.168.0.0/24"}, preAllocations={"a": "10.0.0.5"})),
        ["spec.preAllocations", "is out of bonds of the pools given"],
        WEBHOOK,
        id="M-022",
    ),
    pytest.param(
        pool("p", ranged({"subnet": "10.9.0.0/24"}, preAllocations={"a": "10.9.0.0"})),
        ["spec.preAllocations", "is out of bonds of the pools given"],
        WEBHOOK,
        id="M-029",
    ),
    pytest.param(
        pool("p", ranged({"start": "10.0.0.1"}, preAllocations={"a": "2001:db8::1"})),
        ["spec.preAllocations", "is out of bonds of the pools given"],
        WEBHOOK,
        id="M-030",
    ),
    pytest.param(
        pool("p", {**A, "namePrefix": "Bad_Prefix"}), ["spec.namePrefix", "lower case"], SCHEMA, id="M-072"
    ),
    pytest.param(
        pool("p", {**A, "namePrefix": "a" * (LONGEST_NAME_PREFIX + 1)}),
        ["spec.namePrefix"],
        SCHEMA,
        id="X-27 too long",
    ),
    pytest.param(claim("c", "nowhere"), [], SCHEMA, id="M-034"),
    pytest.param(claim("c", ""), ["spec.pool.name", "cannot be empty"], SCHEMA, id="M-035"),
    pytest.param(claim("c", wants="not-an-ip"), [ANNOTATION, NOT_AN_ADDRESS], WEBHOOK, id="M-036"),
    pytest.param(claim("c", wants=""), [], SCHEMA, id="M-037"),
    pytest.param(
        address("x", "10.0.0.1", "", ""),
        ["spec.pool.name", "spec.claim.name", "cannot be empty"],
        SCHEMA,
        id="M-041",
    ),
    pytest.param(address("x", "", "c"), ["spec.address"], SCHEMA, id="M-041 address"),
]


@pytest.mark.parametrize(("obj", "told", "needs_webhook"), NEW)
async def test_a_new_object_is_taken_or_refused(
    door: tuple[World, bool], obj: Object, told: list[str], needs_webhook: bool
) -> None:
    world, answers = door
    said = await answer(world, obj)
    if not told or (needs_webhook and not answers):
        assert said == ""
    for text in told if answers or not needs_webhook else ():
        assert text in said


async def test_the_seeds_pool_is_stored_with_its_strategy(door: tuple[World, bool]) -> None:
    """M-001."""
    world, _ = door
    stored = await world.client.create(kinds.POOL, pool("p", SEED), world.namespace, dry_run=True)
    assert stored["spec"] == {**SEED, "allocationStrategy": "sequential"}


async def test_a_refusal_tells_every_cause_in_the_servers_own_form(door: tuple[World, bool]) -> None:
    """Contract 2.2: 422, reason Invalid, the object's name, one cause per broken rule; so does the schema."""
    world, answers = door
    if answers:
        wrong = ranged({"start": "10.0.0.9", "end": "10.0.0.1"}, preAllocations={"v": "10.9.9.9"})
        other = ("spec.preAllocations", 'Invalid value: "10.9.9.9": is out of bonds of the pools given')
    else:
        wrong = {**ranged({}), "prefix": -1}
        other = ("spec.prefix", "Invalid value: -1: spec.prefix in body should be greater than or equal to 0")
    with pytest.raises(Invalid) as refused:
        await world.client.create(kinds.POOL, pool("pool1", wrong), world.namespace, dry_run=True)
    assert 'IPPool.ipam.metal3.io "pool1" is invalid' in refused.value.message
    causes = {cause["field"]: cause["message"] for cause in refused.value.details["causes"]}
    assert causes.pop("spec.pools[0]").startswith("Invalid value: ")
    assert causes == dict([other])


async def test_overlap_is_accepted_and_inside_a_pool_warned_of(
    door: tuple[World, bool], namespace: str, kubectl: Kubectl
) -> None:
    """M-032, M-033: kubectl shows the warning."""
    anywhere, answers = door
    world = World(anywhere.client, namespace)
    twice = ranged({"start": "10.0.0.1", "end": "10.0.0.9"}, {"subnet": "10.0.0.0/29"}, name_prefix="one")
    await world.create(pool("one", twice), pool("two", {**twice, "namePrefix": "two"}))
    asked = ("create", "--dry-run=server", "--warnings-as-errors", "-n", world.namespace, "-f", "-")
    if answers:
        with pytest.raises(
            KubectlFailed, match=r"spec.pools\[0\] and spec.pools\[1\] overlap; an address belongs"
        ):
            await kubectl(*asked, stdin=json.dumps(pool("three", twice)))
    else:
        await kubectl(*asked, stdin=json.dumps(pool("three", twice)))


CHANGES: list[Any] = [
    pytest.param({"namePrefix": "b"}, ["spec.namePrefix", "cannot be modified"], SCHEMA, id="M-024"),
    pytest.param(
        {"allocationStrategy": "random"},
        ["spec.allocationStrategy", "cannot be modified after creation"],
        SCHEMA,
        id="M-025",
    ),
    pytest.param(
        {"preAllocations": {"v": "10.0.0.99"}},
        ["spec.preAllocations", "is out of bounds of the pools given"],
        WEBHOOK,
        id="M-023",
    ),
    pytest.param(
        {"pools": [{"start": "10.0.0.10", "end": "10.0.0.11"}]},
        ["spec.pools", "is in use but out of bounds of the pools given"],
        WEBHOOK,
        id="M-027",
    ),
    pytest.param({"pools": [{"start": "10.0.0.10", "end": "10.0.0.20"}]}, [], SCHEMA, id="M-028, X-24"),
]


@pytest.mark.parametrize(("change", "told", "needs_webhook"), CHANGES)
async def test_an_edit_of_a_pool_is_taken_or_refused(
    door: tuple[World, bool], namespace: str, change: Object, told: list[str], needs_webhook: bool
) -> None:
    anywhere, answers = door
    world = World(anywhere.client, namespace)
    await world.create(pool("pool", A, annotations=PAUSED))  # so that its status stays as it is written here
    listed = {"c": "10.0.0.12", "outside": "10.9.9.9"}
    await world.edit(kinds.POOL, "pool", {"status": {"indexes": listed}}, "status")
    await expect(
        world.client.patch(kinds.POOL, "pool", {"spec": change}, namespace, dry_run=True),
        told,
        answers or not needs_webhook,
    )


async def expect(call: Any, told: list[str], holds: bool) -> None:
    if not told or not holds:
        await call
        return
    with pytest.raises(Invalid) as refused:
        await call
    for text in told:
        assert text in refused.value.message


async def test_a_claims_reference_stays(door: tuple[World, bool], namespace: str) -> None:
    """M-038, M-039, M-040."""
    world = World(door[0].client, namespace)
    await world.create(claim("c", "nowhere"))
    for key in ("name", "namespace", "kind"):
        change = {"spec": {"pool": {key: "other"}}}
        await expect(world.edit(kinds.CLAIM, "c", change), ["spec.pool", "cannot be modified"], True)
    for key in ("apiVersion", "uid"):
        await world.edit(kinds.CLAIM, "c", {"spec": {"pool": {key: "other"}}})
    await expect(world.annotate(kinds.CLAIM, "c", "ipAddress", "bad"), [ANNOTATION, NOT_AN_ADDRESS], door[1])


async def test_an_address_stays_and_what_goes_with_it_may_change(
    door: tuple[World, bool], namespace: str
) -> None:
    """M-042, M-043."""
    world = World(door[0].client, namespace)
    await world.create(address("x", "10.0.0.1", "c"))
    for change in ({"address": "10.0.0.2"}, {"pool": {"name": "other"}}, {"claim": {"name": "other"}}):
        (field,) = change
        refused = world.edit(kinds.ADDRESS, "x", {"spec": change})
        await expect(refused, [f"spec.{field}", "cannot be modified"], True)
    more = {"prefix": 24, "gateway": "10.0.0.254", "dnsServers": ["8.8.8.8"]}
    assert (await world.edit(kinds.ADDRESS, "x", {"spec": more}))["spec"]["dnsServers"] == ["8.8.8.8"]


async def test_a_pool_in_use_may_be_deleted_at_any_time(door: tuple[World, bool], namespace: str) -> None:
    """M-031: no admission on DELETE; the finalizer keeps it."""
    world = World(door[0].client, namespace)
    await world.create(cluster_object("cluster1"), pool("pool", A, finalizers=["example.org/in-use"]))
    await world.delete(kinds.POOL, "pool")
    assert meta.is_deleting(await world.get(kinds.POOL, "pool"))
    await world.edit(kinds.POOL, "pool", {"metadata": {"finalizers": []}})
    await world.gone(kinds.POOL, "pool")
