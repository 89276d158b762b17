"""The controller beside the webhooks: what it confirms, undoes, heals and takes over."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from tests.support import metallb
from tests.support.killing import serves
from tests.support.line import Fate, let_through, line
from tests.support.operator import Operator, eventually
from tests.support.vitistack import (
    SYSTEM,
    VALUE,
    World,
    address_of,
    metric,
    of,
    operating,
    service,
)

from berth import log
from berth.central.client import Access, AddressCall, ApiClient
from berth.control.webhooks import VALIDATING as WEBHOOKS
from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds, records
from berth.dialects.vitistack.ipam_client import ask_for
from berth.errors import StatusError
from berth.kube import meta
from berth.leasing.holders import Identity
from berth.secret import Secret

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
DAY = 24 * 3600


async def is_free(world: World, address: str, seconds: float = 60) -> None:
    async def free() -> bool:
        return address.partition("/")[0] not in world.api.addresses()

    assert await eventually(free, seconds)


async def retained_for(world: World, address: str, name: str = "my-service") -> int:
    """Days until its entry expires, rounded; 0 if it is gone."""

    def days() -> int | None:
        entry = world.api.entries(address).get(name)
        if entry is None:
            return 0
        return None if entry.expires_at is None else round((entry.expires_at / 1000 - time.time()) / DAY)

    async def is_known() -> bool:
        return days() is not None

    assert await eventually(is_known, 60)
    return days() or 0


async def test_without_an_api_services_are_refused_in_time(cluster: DevCluster, bare: World) -> None:
    """V-037, T15: nothing half done; the reason names the API and what happened."""
    bare.api.stop()
    async with operating(cluster, bare.api):
        error = await bare.refusal()
        assert error.code == 503
        url = f"fail to send request to: {bare.api.url} , error: "
        assert f"failed to request IP for address-family ipv4 for Service my-service: {url}" in error.message
        assert not await bare.records()
    bare.api.start()


async def test_without_a_url_the_refusal_says_so(cluster: DevCluster, bare: World) -> None:
    """V-227"""
    async with operating(cluster, bare.api, api_url=""):
        assert "IPAM_API_URL was not found" in await bare.refused()


async def test_an_api_that_hangs_is_answered_for(cluster: DevCluster, bare: World) -> None:
    """T15, T19, V-045: our answer comes within our deadline, whatever the other side does."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v2"
    async with server, operating(cluster, bare.api, api_url=url, webhook_deadline_seconds=2.0):
        loop = asyncio.get_running_loop()
        started = loop.time()
        error = await bare.refusal()
        assert error.code == 504  # ours: the API server would have waited for 30 s
        assert loop.time() - started < 25
        server.close()
        server.close_clients() if hasattr(server, "close_clients") else None


async def test_admitted_without_an_api_and_served_later(cluster: DevCluster, bare: World) -> None:
    """Decision 7: --when-api-is-down=admit."""
    bare.api.stop()
    async with operating(cluster, bare.api, when_api_is_down="admit"):
        made = await bare.create()
        assert of(made, "zone") == "inet"
        assert not address_of(made)
        named = await bare.create("named", annotations={"addresses": "83.118.171.7"})
        assert address_of(named) == "83.118.171.7"
        bare.api.start()

        async def is_served() -> bool:
            address = address_of(await bare.get())
            return bool(address) and bare.api.entries(address)["my-service"].active

        assert await eventually(is_served, 60)

        async def is_confirmed() -> bool:
            entry = bare.api.entries("83.118.171.7").get("named")
            return entry is not None and entry.active

        assert await eventually(is_confirmed, 60)


async def test_what_is_not_confirmed_may_be_anothers_and_is_not_announced(
    cluster: DevCluster, bare: World
) -> None:
    """Decision 7: admitted while nobody could tell; MetalLB hears of it when the IPAM-API has said yes."""
    taken, free = bare.free_address(), bare.free_address()
    async with ApiClient(Access(bare.api.url)) as api:
        await api.register(AddressCall(Identity("s", "n", "elsewhere"), "inet", "ipv4", Secret(VALUE), taken))
    bare.api.stop()
    async with operating(cluster, bare.api, when_api_is_down="admit"):
        await bare.create("taken", annotations={"addresses": taken})
        await bare.create("free", annotations={"addresses": free})
        assert not await bare.pool()
        bare.api.start()

        async def is_told() -> bool:
            return "NoMatch" in await bare.events("taken") and await bare.pooled(free)

        assert await eventually(is_told, 60)
        assert not await bare.pooled(taken)


async def test_a_service_that_waits_says_why_in_one_word(cluster: DevCluster, bare: World) -> None:
    """The IPAM-API's word, the same in condition, Event, metric and log; when it is served, nothing is said
    any more, and a Service that never waited has no condition.
    """
    taken, heard = bare.free_address(), StringIO()
    theirs = AddressCall(Identity("s", "n", "elsewhere"), "inet", "ipv4", Secret(VALUE), taken)
    async with ApiClient(Access(bare.api.url)) as api:
        await api.register(theirs)
    bare.api.stop()
    async with operating(cluster, bare.api, when_api_is_down="admit") as operator:
        await bare.create("taken", annotations={"addresses": taken})
        assert await eventually(lambda: waits(bare, "taken", "ApiDown"), 60)
        log.configure("info", heard)
        try:
            bare.api.start()
            assert await eventually(lambda: waits(bare, "taken", "NoMatch"), 60)
        finally:
            log.configure("info")
        assert "NoMatch" in await bare.events("taken")
        assert '"reason":"NoMatch"' in heard.getvalue()
        counted = 'berth_decisions_total{dialect="vitistack",reason="NoMatch",result="refusal"}'
        assert await metric(operator, counted) >= 1.0
        await bare.create("free")
        await rest(bare, operator)
        async with ApiClient(Access(bare.api.url)) as api:
            await api.release(theirs)
        assert await eventually(lambda: waits(bare, "taken", ""), 60)
        assert await waits(bare, "free", "")
        refusal = await bare.refusal("twice", annotations={"secret": "nowhere"})
        assert refusal.details["causes"][0]["reason"] == "AddressRefused"


async def waits(world: World, name: str, word: str) -> bool:
    """For the reason that its condition says; empty: there is none."""
    found = meta.condition(await world.get(name), kinds.CONDITION) or {}
    assert found.get("status") in (None, "False")
    return bool(found.get("reason", "") == word)


async def rest(world: World, operator: Operator) -> None:
    """Until the controller has nothing under way any more; then a refused one costs a look now and then, and
    no write.
    """
    version = meta.resource_version(await world.get("taken"))
    passes = "berth_reconcile_seconds_count"
    before = await metric(operator, passes)

    async def has_looked() -> bool:
        return await metric(operator, passes) >= before + 2

    assert await eventually(has_looked, 90)
    assert meta.resource_version(await world.get("taken")) == version


async def test_what_a_rival_for_the_name_asked_for_takes_nothing_from_the_living(
    cluster: DevCluster, bare: World
) -> None:
    """Two requests for one name at once: one was stored, and the IPAM-API heard the other one last."""
    async with operating(cluster, bare.api):
        made = await bare.create()
        address, uid = address_of(made), made["metadata"]["uid"]
        lying = (await bare.client.list(kinds.CONFIG_MAP, SYSTEM, label_selector=kinds.RECORD_LABEL)).items
        (ours,) = records.parse(lying[0])
        rival = replace(ours, uid="never-stored", until=time.time() + 2)
        async with ApiClient(Access(bare.api.url)) as api:
            await api.register(ask_for(rival, Secret(await bare.default_secret())))
        assert bare.api.entries(address)["my-service"].uid == "never-stored"
        await bare.client.create(kinds.CONFIG_MAP, records.body("rival", SYSTEM, [rival]))

        async def is_undone() -> bool:
            return len(await bare.records()) == 1

        assert await eventually(is_undone, 60)
        entry = bare.api.entries(address)["my-service"]
        assert (entry.active, entry.uid) == (True, uid)


async def test_twenty_first_requests_make_one_default_secret(cluster: DevCluster, bare: World) -> None:
    """V-006"""
    async with operating(cluster, bare.api):
        made = await asyncio.gather(*(bare.create(f"web-{number}") for number in range(20)))
        assert len({address_of(one) for one in made}) == 20
        value = await bare.default_secret()
        for one in made:
            assert bare.api.entries(address_of(one))[one["metadata"]["name"]].active
            assert await bare.opens(address_of(one), value, one["metadata"]["name"])
        assert [one["metadata"]["name"] for one in (await bare.client.list(kinds.SECRET, SYSTEM)).items] == [
            "default"
        ]


async def test_a_lost_default_secret_is_told_loudly(cluster: DevCluster, bare: World) -> None:
    """2.8, H-27: while addresses depend on it no new one is made; releasing never makes one."""
    async with operating(cluster, bare.api):
        await bare.create("first")
        await bare.client.delete(kinds.SECRET, "default", SYSTEM)
        await default_is_gone(bare)


async def default_is_gone(world: World) -> None:
    async def is_told() -> bool:
        try:
            await world.create("second")
        except StatusError as error:
            text = "failed to get default secret. Error: Secret ipam-system/default is gone"
            return text in error.message
        await world.delete("second")
        return False

    assert await eventually(is_told, 60)


async def test_a_default_secret_lost_with_all_records_is_told_loudly(
    cluster: DevCluster, bare: World
) -> None:
    """2.8, H-27, rule 16: the namespace of both was made anew, or a backup had only the Services."""
    async with operating(cluster, bare.api):
        await bare.create("first")
    await bare.client.delete(kinds.SECRET, "default", SYSTEM)
    for one in (await bare.client.list(kinds.CONFIG_MAP, SYSTEM, label_selector=kinds.RECORD_LABEL)).items:
        await bare.client.delete(kinds.CONFIG_MAP, one["metadata"]["name"], SYSTEM)
    async with operating(cluster, bare.api):
        await default_is_gone(bare)
        assert not (await bare.client.list(kinds.SECRET, SYSTEM)).items


async def test_deleted_while_the_operator_was_away(cluster: DevCluster, bare: World) -> None:
    """V-097 across a restart, T23: records tell what to release, with the retention they know (V-103)."""
    await bare.secret()
    async with operating(cluster, bare.api):
        late = address_of(await bare.create("late", annotations={"retention-period-days": "1"}))
        await bare.rested("late")
        kept = address_of(await bare.create("kept", annotations={"retention-period-days": "5"}))
        gone = address_of(await bare.create("gone", annotations={"secret": "my-secret"}))
        same = address_of(await bare.create("same"))
        # The last word of this operator: nobody looks at the Service again before it is gone.
        await bare.annotate("late", retention_period_days="7")
    await bare.delete("late")
    await bare.client.patch(
        kinds.SERVICE, "kept", {"metadata": {"annotations": {kinds.RETENTION: "abc"}}}, bare.namespace
    )
    await bare.client.delete(kinds.SECRET, "my-secret", bare.namespace)
    await bare.delete("gone")
    async with operating(cluster, bare.api):
        await bare.delete("kept")
        await is_free(bare, gone)

        async def is_retained() -> bool:
            entry = bare.api.entries(kept)["kept"]
            return entry.expires_at is not None and entry.retention == 5

        assert await eventually(is_retained, 60)
        assert bare.api.entries(same)["same"].active
        assert await retained_for(bare, late, "late") == 7
        assert address_of(await bare.get("same")) == same


async def test_a_type_change_before_an_ip_is_shown(cluster: DevCluster, bare: World) -> None:
    """V-081: nobody assigns here."""
    async with operating(cluster, bare.api):
        await serves(bare)
        address = address_of(await bare.create())
        now = await bare.patch({"spec": {"type": "NodePort"}})
        assert not now["status"]["loadBalancer"]
        assert not set(meta.annotations(now)) & set(kinds.METALLB)
        await is_free(bare, address)

        async def has_left() -> bool:
            return not await bare.pooled(address)

        assert await eventually(has_left, 60)


async def test_an_effect_without_an_answer_does_not_last(cluster: DevCluster, bare: World) -> None:
    """V-045: refused, although the IPAM-API had done it."""
    async with line(bare.api.url) as (wire, url), operating(cluster, bare.api, api_url=url):
        await serves(bare)
        wire.before = lost
        await bare.refused()
        assert bare.api.of_namespace(bare.namespace_id)
        wire.before = let_through

        async def is_gone() -> bool:
            return not bare.api.of_namespace(bare.namespace_id)

        assert await eventually(is_gone, 60)


async def lost(number: int) -> Fate:
    return Fate.LOSE


async def test_made_again_and_refused_before_the_release_is_retained(
    cluster: DevCluster, bare: World
) -> None:
    """I2: a Service is gone, its release still to come, and another of its name is refused after it was
    confirmed: the first one's retention counts, and nothing is held for ever.
    """
    async with line(bare.api.url) as (wire, url), operating(cluster, bare.api, api_url=url):
        await serves(bare)
        address = address_of(await bare.create(annotations={"retention-period-days": "7"}))
        wire.before = down
        await bare.delete()

        async def was_tried() -> bool:
            return wire.spoiled >= 3

        assert await eventually(was_tried, 60)
        wire.before = let_through
        message = await bare.refused(annotations={"ip-family": "dual", "addresses": "2001:db8::1"})
        assert "not valid for the provided zone" in message
        assert await retained_for(bare, address) == 7
        assert "2001:db8::1" not in bare.api.addresses()


async def down(number: int) -> Fate:
    return Fate.DOWN


async def test_a_restart_moves_nothing_and_writes_nothing(cluster: DevCluster, bare: World) -> None:
    """P12: the same Services, records and pool before and after."""
    async with operating(cluster, bare.api):
        for number in range(5):
            await bare.create(f"web-{number}", annotations={"ip-family": "dual"} if number % 2 else None)
    before = [
        meta.resource_version(one) for one in (await bare.client.list(kinds.SERVICE, bare.namespace)).items
    ]
    history = bare.history()
    async with operating(cluster, bare.api):
        late = await bare.create("late")
        assert address_of(late)
    services = (await bare.client.list(kinds.SERVICE, bare.namespace)).items
    after = [meta.resource_version(one) for one in services if one["metadata"]["name"] != "late"]
    assert after == before
    assert [event for event in bare.history()[len(history) :] if event != "confirmed"] == ["registered"]


async def upstream_left(world: World, number: int) -> str:
    """A Service as upstream's operator leaves it: a bare list, no record."""
    address = f"83.118.170.{number}"
    annotations = {
        "addresses": address, "zone": "inet", "ip-family": "ipv4", "secret": "default",
        "allow-local-shared-ip": f"pre-shared-key-{number}", "retention-period-days": "0",
        "deny-external-cleanup": "false",
    }  # fmt: skip
    body = service(f"old-{number}", world.namespace, annotations=annotations)
    body["metadata"]["annotations"] |= {
        kinds.METALLB_ADDRESSES: address, kinds.METALLB_POOL: "inet",
        kinds.METALLB_KEY: f"pre-shared-key-{number}",
    }  # fmt: skip
    await world.client.create(kinds.SERVICE, body)
    world.made.append((world.namespace, f"old-{number}"))
    return address


async def test_upstreams_services_are_taken_over_as_they_are(cluster: DevCluster, bare: World) -> None:
    """V-230: no address changes, no registration is lost, upstream's default secret opens all of them, the
    pool is the same.
    """
    addresses = [await upstream_left(bare, number) for number in range(5)]
    await bare.secret("default", VALUE, namespace=SYSTEM)
    system = await bare.client.get(kinds.NAMESPACE, "kube-system")
    async with ApiClient(Access(bare.api.url, seconds=30)) as api:
        for number, address in enumerate(addresses):
            who = Identity(f"old-{number}", bare.namespace_id, meta.uid(system))
            await api.register(AddressCall(who, "inet", "ipv4", Secret(VALUE), address))
    before = bare.history()
    pool = {
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
        "metadata": {"name": "inet", "namespace": metallb.NAMESPACE},
        "spec": {"addresses": [f"{address}/32" for address in addresses], "autoAssign": False},
    }  # fmt: skip
    await bare.client.create(kinds.POOL, pool)
    async with operating(cluster, bare.api):

        async def all_known() -> bool:
            entries = [bare.api.entries(address)[f"old-{n}"] for n, address in enumerate(addresses)]
            return all(entry.active and entry.uid for entry in entries)

        assert await eventually(all_known, 60)
        assert set(bare.history()[len(before) :]) == {"updated"}  # with the UIDs that only we tell
        for number, address in enumerate(addresses):
            assert await bare.opens(address, VALUE, f"old-{number}")
        assert await bare.pool() == [f"{address}/32" for address in addresses]
        found = await bare.get("old-3")
        assert address_of(found) == addresses[3]
        await bare.patch({"metadata": {"labels": {"a": "b"}}}, "old-3")
        assert address_of(await bare.get("old-3")) == addresses[3]
        await bare.delete("old-3")
        await is_free(bare, addresses[3])


async def test_a_service_from_before_us_is_adopted(cluster: DevCluster, bare: World) -> None:
    """V-051: with the address it shows, and the key it shares it by; one that is not in the zone, or in
    a pool of the administrator's (MetalLB refuses pools that overlap), is left alone with a warning.
    """
    await metallb.make_pool(bare.client, "first", ["83.118.168.128/25"])
    for name, address in (
        ("ours", "83.118.168.9"),
        ("shared", "83.118.168.10"),
        ("theirs", "192.0.2.9"),
        ("pooled", "83.118.168.200"),
    ):
        await bare.create(name)
        status = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
        await bare.client.patch(kinds.SERVICE, name, status, bare.namespace, subresource="status")
    key = {"metallb.universe.tf/allow-shared-ip": "theirs"}
    await bare.patch({"metadata": {"annotations": key}}, "shared")
    async with operating(cluster, bare.api):

        async def is_adopted() -> bool:
            found = [address_of(await bare.get(name)) for name in ("ours", "shared")]
            return found == ["83.118.168.9/32", "83.118.168.10/32"]

        assert await eventually(is_adopted, 60)
        shared = meta.annotations(await bare.get("shared"))
        assert (shared[kinds.SHARING_KEY], shared[kinds.METALLB_KEY]) == ("theirs", "theirs")
        assert bare.api.entries("83.118.168.9")["ours"].active
        for name in ("theirs", "pooled"):
            left = await bare.patch({"metadata": {"labels": {"a": "b"}}}, name)
            assert not any(key.startswith(kinds.PREFIX) for key in meta.annotations(left))
        assert "83.118.168.200" not in bare.api.addresses()


async def test_other_services_do_not_need_the_operator(cluster: DevCluster, bare: World) -> None:
    """V-075, T19: with our webhooks registered and nobody behind them."""
    async with operating(cluster, bare.api) as operator:
        held = await bare.client.list(WEBHOOKS)
        assert operator.listening.webhook
        ours = next(one for one in held.items if one["metadata"]["name"] == kinds.VALIDATING_CONFIGURATION)
    dead: dict[str, Any] = {key: value for key, value in ours.items() if key != "metadata"}
    await bare.client.create(WEBHOOKS, {**dead, "metadata": {"name": "dead-copy"}})
    try:
        for number in range(20):
            await bare.create(f"plain-{number}", type="ClusterIP")
            await bare.delete(f"plain-{number}")

        async def is_refused() -> bool:
            try:
                await bare.create("ours")
            except StatusError:
                return True
            await bare.delete("ours")
            return False

        assert await eventually(is_refused, 60)
    finally:
        await bare.client.delete(WEBHOOKS, "dead-copy")
