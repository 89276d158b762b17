"""Reviews whose objects are never stored, and what comes after them."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.faults.proxy import Cut, FaultProxy, Pass, Plan, Verdict, Write
from tests.support.killing import serves
from tests.support.line import Fate, line
from tests.support.operator import Operator, eventually
from tests.support.vitistack import SYSTEM, VALUE, World, address_of, operating

from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds
from berth.dialects.vitistack.records import Record, body, parse
from berth.dialects.vitistack.service_annotations import Terms
from berth.kube import meta
from berth.leasing.holders import Identity
from berth.net import parse_address

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]
Object = dict[str, Any]


async def reviewed(operator: Operator, old: Object, **changes: str) -> bool:
    """Whether our validating webhook admits an update, about which nobody but us is asked."""
    keys = {kinds.PREFIX + key.replace("_", "-"): value for key, value in changes.items()}
    about = {**old["metadata"], "annotations": {**meta.annotations(old), **keys}}
    request = {
        "uid": str(uuid.uuid4()),
        "kind": {"group": "", "version": "v1", "kind": "Service"},
        "resource": {"group": "", "version": "v1", "resource": "services"},
        "namespace": about["namespace"],
        "name": about["name"],
        "operation": "UPDATE",
        "userInfo": {"username": "admin", "groups": ["system:masters"]},
        "object": {**old, "metadata": about},
        "oldObject": old,
        "dryRun": False,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    url = operator.settings.webhook_url + kinds.VALIDATE_PATH
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
        session.post(url, json=review) as response,
    ):
        return bool((await response.json())["response"]["allowed"])


async def test_an_update_after_a_rotation_that_was_not_stored_keeps_the_stored_secret(
    cluster: DevCluster, bare: World
) -> None:
    """T26: the live object counts, whatever the record says meanwhile."""
    async with operating(cluster, bare.api, vitistack_pending_seconds=120.0) as operator:
        await serves(bare)
        await bare.secret()
        made = await bare.create()
        assert await reviewed(operator, made, secret="my-secret")
        await bare.annotate(deny_external_cleanup="true")

        async def is_finished() -> bool:
            mine = [one["data"] for one in await bare.records() if one["data"]["service"] == "my-service"]
            return [one.get("replaced") for one in mine] == [None]

        assert await eventually(is_finished, 60)
        assert await bare.opens(address_of(made), await bare.default_secret())
        await bare.delete()

        async def is_free() -> bool:
            return not bare.api.of_namespace(bare.namespace_id)

        assert await eventually(is_free, 60)


async def test_what_the_api_gives_is_free_whatever_another_namespace_left_here(
    cluster: DevCluster, bare: World
) -> None:
    """V-106 is about addresses that are named. Here the release was heard, and its record is not gone yet."""
    first = "83.118.168.0"  # what a new IPAM-API gives
    who = Identity("gone", "namespace-of-others", "cluster-of-others")  # so that it is left alone
    old = Record("others", who, "inet", parse_address(first), "default", "k", Terms(), uid="u")
    await bare.secret("default", VALUE, namespace=SYSTEM)
    await bare.client.create(kinds.CONFIG_MAP, body("records-old", SYSTEM, [old]))
    async with operating(cluster, bare.api):
        await serves(bare)
        assert address_of(await bare.create()) == f"{first}/32"


@pytest.mark.parametrize(
    ("marks", "for_named", "for_given"),
    [
        ({}, True, False),
        ({"released": True, "retained_until": 200.0}, True, False),
        ({"released": True, "retained_until": 50.0}, False, False),
        ({"until": 200.0}, True, True),
        ({"until": 50.0}, True, False),
        ({"until": 200.0, "lived": True}, True, False),
    ],
)
async def test_which_records_count_for_others(marks: Object, for_named: bool, for_given: bool) -> None:
    who = Identity("s", "n", "c")
    old = Record("n", who, "inet", parse_address("10.0.0.1"), "default", "k", Terms(), **marks)
    assert old.may_exclude(100.0, given=False) is for_named
    assert old.may_exclude(100.0, given=True) is for_given


async def test_a_pool_write_whose_answer_is_lost_leaves_no_entry_behind(
    cluster: DevCluster, bare: World, tmp_path: Path
) -> None:
    """T14: the Service is refused, and its record stays until the entry is gone."""

    async def cut_pools(write: Write) -> Verdict:
        return Cut() if "ipaddresspools" in write.path else Pass()

    async with (
        FaultProxy(cluster, tmp_path).running() as proxy,
        operating(cluster, bare.api, kubeconfig=proxy.kubeconfig),
    ):
        await serves(bare)
        proxy.plan = Plan(after=cut_pools)
        named = bare.free_address()
        await bare.refused(annotations={"addresses": named})
        proxy.plan = Plan()
        assert await bare.pooled(f"{named}/32")

        async def is_undone() -> bool:
            return not (await bare.pool() or await bare.records() or bare.api.addresses())

        assert await eventually(is_undone, 60)


async def test_a_service_made_again_while_the_api_is_away_leaves_nothing_registered(
    cluster: DevCluster, bare: World
) -> None:
    """T22, T23: the entry is the first one's still, and the record that of the second, which never was."""
    async with operating(cluster, bare.api):
        await serves(bare)
        named = bare.free_address()
        await bare.create(annotations={"addresses": named})
        bare.api.stop()
        await bare.delete()
        assert (await bare.refusal(annotations={"addresses": named})).code == 503
        bare.api.start()

        async def is_undone() -> bool:
            return not (bare.api.addresses() or await bare.records())

        assert await eventually(is_undone, 60)


async def test_a_record_remembers_whom_the_entry_may_be_registered_for() -> None:
    who, address = Identity("s", "n", "c"), parse_address("10.0.0.1")
    found = Record("n", who, "inet", address, "default", "k", Terms(), uid="u-0")
    for number in range(1, 20):
        newer = replace(found, uid=f"u-{number}", formers=())
        found = newer.over(found)
        assert newer.over(found) == found  # asked twice
    assert found.formers == ("u-0", *(f"u-{number}" for number in range(12, 19)))
    assert not replace(found, formers=()).over(replace(found, released=True)).formers
    assert list(parse(body("records-1", SYSTEM, [found]))) == [found]


async def test_a_call_that_arrives_after_its_release_leaves_no_entry(
    cluster: DevCluster, bare: World
) -> None:
    """I4: an update is being confirmed while its Service goes and all of it is released."""
    arrives, held = asyncio.Event(), asyncio.Event()

    async def hold_the_first(number: int) -> Fate:
        if number == 1:
            held.set()
            await arrives.wait()
        return Fate.PASS

    async with (
        line(bare.api.url) as (wire, url),
        operating(
            cluster, bare.api, api_url=url, api_seconds=30.0, webhook_deadline_seconds=60.0
        ) as operator,
    ):
        await serves(bare)
        made = await bare.create()
        wire.calls, wire.before = 0, hold_the_first
        review = asyncio.create_task(reviewed(operator, made, deny_external_cleanup="true"))
        await asyncio.wait_for(held.wait(), 60)
        await bare.delete()

        async def is_released() -> bool:
            return not bare.api.of_namespace(bare.namespace_id) and not await bare.records()

        assert await eventually(is_released, 60)
        arrives.set()
        await review
        assert await eventually(is_released, 60)
        await asyncio.sleep(1.0)
        assert await is_released()
