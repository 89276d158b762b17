"""Who speaks for a cluster, and how much may go at once: inventories, copies, the brake, the log's lines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from pathlib import Path

import aiohttp
import orjson
import pytest
from tests.faults.process import operator
from tests.support.killing import serves, unhooked
from tests.support.operator import eventually
from tests.support.settings import settings_of
from tests.support.started import free_port
from tests.support.vitistack import SYSTEM, Api, World, address_of, metric, operating

from berth import log
from berth.central.client import Access, AddressCall, ApiClient, Inventory
from berth.control.events import EVENTS
from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds
from berth.dialects.vitistack.records import parse
from berth.errors import UserError
from berth.leasing.holders import Identity
from berth.run import operate
from berth.secret import Secret

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]
# Both count as gone one and a half of these after their last word: a slow machine does not stall for that.
HEARTBEAT_SECONDS = 5.0
LINES = (
    "Mutation Started for Service",
    "Dry run .Spec:",
    "Mutation Started for Service",
    "Dry run mode detected, skipping mutating for Service:",
    "Validation Create Started for Service",
    "Dry run mode detected, skipping validate create for Service:",
    "Initialized default secret",
    "Request IPv4-address for Service:",
    "Received IPv4-address for Service:",
    "Mutating Completed for Service",
    "Validation Create Started for Service",
    "Validate IP-address succeeded!",
    "Validation Create Completed for Service",
)


async def test_two_operators_with_one_cluster_id_release_nothing(
    cluster: DevCluster, bare: World, tried: Callable[[int], None]
) -> None:
    """T25, rule 13: frozen as long as both speak, with an alarm; when one has left, what is due is done."""
    patient = {"vitistack_heartbeat_seconds": HEARTBEAT_SECONDS}
    async with operating(cluster, bare.api, **patient) as original:
        await serves(bare)
        addresses = [address_of(await bare.create(f"web-{number}")) for number in range(2)]
        async with operating(cluster, bare.api, **patient) as copy:

            async def both_know() -> bool:
                alarms = [await metric(one, "berth_cluster_frozen") for one in (original, copy)]
                return alarms == [1.0, 1.0]

            assert await eventually(both_know, 60)
            for number in range(2):
                await bare.delete(f"web-{number}")

            async def is_told() -> bool:
                return "ReleasePending" in await bare.events("web-0")

            assert await eventually(is_told, 60)
            assert all(bare.api.entries(one)[f"web-{n}"].active for n, one in enumerate(addresses))
            assert address_of(await asking(bare, "late"))  # registering goes on

        async def is_free() -> bool:
            return not set(bare.api.of_namespace(bare.namespace_id)) & {_bare(one) for one in addresses}

        assert await eventually(is_free, 60)

        async def is_over() -> bool:
            return await metric(original, "berth_cluster_frozen") == 0.0

        assert await eventually(is_over, 60)
        tried(1)


async def test_a_copy_without_services_is_noticed_before_it_releases(
    cluster: DevCluster, bare: World
) -> None:
    """T25: the records were copied, the Services were not, and there are too few for the brake. As long as
    the original speaks nothing is released; when it has left, what is due is done.
    """
    async with operating(cluster, bare.api):
        await serves(bare)
        made = [await bare.create(f"web-{number}") for number in range(3)]
    for number in range(3):
        await bare.delete(f"web-{number}")

    async def is_over() -> bool:
        """Their admission: until then a Service may still be stored."""
        return all(float(one["data"]["until"]) < time.time() for one in await bare.records())

    assert await eventually(is_over, 60)
    addresses, secret = [address_of(one) for one in made], Secret(await bare.default_secret())
    cluster_id = bare.api.entries(addresses[0])["web-0"].cluster_id
    asks = tuple(
        AddressCall(Identity(f"web-{number}", bare.namespace_id, cluster_id), "inet", "ipv4", secret, address)
        for number, address in enumerate(addresses)
    )
    async with ApiClient(Access(bare.api.url)) as api:
        await api.report(Inventory(cluster_id, "original", 1, asks, 60))
        async with operating(cluster, bare.api) as copy:

            async def is_told() -> bool:
                frozen = await metric(copy, "berth_cluster_frozen")
                return frozen == 1.0 and "ReleasePending" in await bare.events("web-0")

            assert await eventually(is_told, 60)
            assert all(bare.api.entries(one)[f"web-{n}"].active for n, one in enumerate(addresses))
            await api.report(Inventory(cluster_id, "original", 2, asks, 60, leaving=True))

            async def is_free() -> bool:
                return not bare.api.of_namespace(bare.namespace_id)

            assert await eventually(is_free, 60)


async def test_the_successor_of_a_killed_operator_releases_within_30_seconds(
    cluster: DevCluster, bare: World, tmp_path: Path
) -> None:
    """Two replicas, one of them killed: the other leads, and waits no longer than until it is certain that
    the dead one says nothing more. Heartbeats come twice as often as they are shipped.
    """
    leading, standby = (
        settings_of(
            kubeconfig=cluster.kubeconfig,
            dialects=("vitistack",),
            api_url=bare.api.url,
            webhook_url=f"https://127.0.0.1:{free_port()}",
            health_listen=f"127.0.0.1:{free_port()}",
            leader_elect=True,
            lease_namespace=SYSTEM,
            vitistack_pending_seconds=4.0,
            vitistack_heartbeat_seconds=15.0,
        )
        for _ in range(2)
    )
    async with unhooked(bare.client), operator(leading, tmp_path / "first.log") as first:
        await serves(bare)
        address = address_of(await bare.create("web"))

        async def is_heard() -> bool:
            return bool(bare.api.speakers())

        assert await eventually(is_heard, 60)
        async with operator(standby, tmp_path / "second.log"), aiohttp.ClientSession() as session:

            async def is_up() -> bool:
                with suppress(aiohttp.ClientError):
                    async with session.get(f"http://{standby.health_listen}/healthz") as answer:
                        return answer.status == 200
                return False

            assert await eventually(is_up, 60)
            await asyncio.to_thread(first.kill)
            killed_at = time.monotonic()
            await bare.delete("web")

            async def is_free() -> bool:
                return _bare(address) not in bare.api.of_namespace(bare.namespace_id)

            assert await eventually(is_free, 60)
            assert time.monotonic() - killed_at < 30.0


async def asking(world: World, name: str) -> dict[str, object]:
    """Two operators register in turn; whoever answers, it is admitted."""

    async def made() -> dict[str, object]:
        return await world.create(name)

    return await eventually(made, 60)


def _bare(address: str) -> str:
    return address.partition("/")[0]


async def test_what_the_ledger_lost_comes_back(cluster: DevCluster, bare: World) -> None:
    """Rule 13: an older copy of the database is served; the inventory tells it what it lacks."""
    async with operating(cluster, bare.api):
        await serves(bare)
        bare.api.stop()
        copy = {path: path.read_bytes() for path in database_of(bare.api)}
        bare.api.start()
        made = await asking(bare, "web")
        address = address_of(made)
        bare.api.stop()
        for path in database_of(bare.api):
            path.unlink()
        for path, content in copy.items():
            path.write_bytes(content)
        bare.api.start()

        async def is_back() -> bool:
            entry = bare.api.entries(address).get("web")
            return entry is not None and entry.active

        assert await eventually(is_back, 60)


def database_of(api: Api) -> list[Path]:
    return [path for path in api.folder.glob("api.db*") if path.suffix not in (".pepper", ".lock")]


async def test_many_absent_services_wait_for_a_person(cluster: DevCluster, bare: World) -> None:
    """Rule 10: twenty records without their Services, met at a start, are not released until somebody
    agrees to just that; one that goes under our eyes is.
    """
    async with operating(cluster, bare.api):
        await serves(bare)
        await asyncio.gather(*(bare.create(f"web-{number}") for number in range(20)))
    await asyncio.gather(*(bare.delete(f"web-{number}") for number in range(20)))

    async def is_over() -> bool:
        """Their admission: until then a Service may still be stored."""
        return all(float(one["data"]["until"]) < time.time() for one in await bare.records())

    assert await eventually(is_over, 60)
    async with operating(cluster, bare.api) as operator:

        async def word() -> str:
            told = [one for one in (await bare.client.list(EVENTS)).items if _is_brake(one)]
            assert told
            return str(told[-1]["message"].rpartition("=")[2])

        agreed = await eventually(word, 60)
        seen = address_of(await asking(bare, "seen"))
        await bare.delete("seen")

        async def is_free() -> bool:
            return _bare(seen) not in bare.api.of_namespace(bare.namespace_id)

        assert await eventually(is_free, 60)
        assert len(bare.api.of_namespace(bare.namespace_id)) == 20
        assert await metric(operator, "berth_releases_braked") == 20.0
        note = {"metadata": {"annotations": {kinds.RELEASE_ABSENT: agreed}}}
        await bare.client.patch(kinds.NAMESPACE, SYSTEM, note)

        async def all_free() -> bool:
            return not bare.api.of_namespace(bare.namespace_id)

        assert await eventually(all_free, 60)


def _is_brake(event: dict[str, str]) -> bool:
    return event["reason"] == "ReleasesHeldBack"


async def test_a_record_of_another_cluster_is_left_alone(cluster: DevCluster, bare: World) -> None:
    """Restored from another cluster's backup: what it stands for is not ours to release."""
    async with operating(cluster, bare.api):
        await serves(bare)
        made = await asking(bare, "web")
        lying = next(
            one
            for one in (await bare.client.list(kinds.CONFIG_MAP, SYSTEM)).items
            for record in parse(one)
            if record.who.service_name == "web"
        )
        data = {key: text.replace('"web"', '"elsewhere"') for key, text in lying["data"].items()}
        strange = {key: _moved(text) for key, text in data.items()}
        about = {"name": "restored", "namespace": SYSTEM, "labels": {kinds.RECORD_LABEL: "true"}}
        await bare.client.create(
            kinds.CONFIG_MAP, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": strange}
        )
        await bare.delete("web")

        async def is_free() -> bool:
            return _bare(address_of(made)) not in bare.api.addresses()

        assert await eventually(is_free, 60)
        assert await bare.client.get(kinds.CONFIG_MAP, "restored", SYSTEM)
        await bare.client.delete(kinds.CONFIG_MAP, "restored", SYSTEM)


def _moved(text: str) -> str:
    return orjson.dumps(orjson.loads(text) | {"cluster-id": "another", "until": "0"}).decode()


async def test_the_documents_lines_are_in_the_log(cluster: DevCluster, bare: World) -> None:
    """2.12, D-09: in the document's order, with name and namespace, and the address without its mask."""
    heard = StringIO()
    async with operating(cluster, bare.api, vitistack_pending_seconds=60.0) as operator:
        await serves(bare)
        log.configure("info", heard)
        try:
            made = await bare.create()
        finally:
            log.configure("info")
        lines = [line.split("\t") for line in heard.getvalue().splitlines()]
        told = [line for line in lines if line[2] == "ipam-operator" and line[3] in LINES]
        assert [line[3] for line in told] == list(LINES)
        for line in told:
            if line[3] != "Initialized default secret":
                fields = orjson.loads(line[4])
                assert (fields["name"], fields["namespace"]) == ("my-service", bare.namespace)
        address = _bare(address_of(made))
        assert orjson.loads(told[8][4])["address"] == address
        assert orjson.loads(told[11][4])["ip"] == address
        assert await metric(operator, "berth_records_written_total") == 1.0
        grants = 'berth_decisions_total{dialect="vitistack",reason="",result="grant"}'
        assert await metric(operator, grants) == 1.0

        async def is_counted() -> bool:
            return await metric(operator, 'berth_claims{dialect="vitistack",state="Bound"}') == 1.0

        assert await eventually(is_counted, 60)
        assert await metric(operator, "berth_ipam_api_seconds_count") == 2.0


async def test_two_dialects_may_not_serve_the_same_class() -> None:
    """Decision 6: the operator says so and stops."""
    settings = settings_of(dialects=("vip", "vitistack"), vip_classes=("", "a"), vitistack_classes=("", "b"))
    with pytest.raises(UserError, match="would both serve Services of loadBalancerClass ''"):
        await operate(settings)
