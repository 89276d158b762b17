"""A pod that sends the webhooks any number of made-up reviews, each a lie of another kind."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest
from tests.faults.process import operator
from tests.support.forging import PATHS, Forger, Said, edited, review
from tests.support.killing import serves
from tests.support.looking import look
from tests.support.settings import settings_of
from tests.support.started import free_port
from tests.support.vitistack import (
    VALUE,
    Api,
    World,
    address_of,
    emptied,
    eventually,
    fresh,
    prepared,
)

from berth.control.webhooks import MUTATING, VALIDATING
from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds
from berth.errors import NotFound
from berth.kube.client import Client

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]
Object = dict[str, Any]
REVIEWS = 500
HELD_SECONDS = 0.05
AT_ONCE = 8


@contextmanager
def running_api(folder: Path) -> Iterator[Api]:
    api = Api(folder)
    api.start()
    try:
        yield api
    finally:
        api.stop()


@asynccontextmanager
async def unhooked(client: Client) -> AsyncIterator[None]:
    """An operator that is killed leaves its webhooks behind: others of this control plane go on without."""
    try:
        yield
    finally:
        for resource, name in (
            (MUTATING, kinds.MUTATING_CONFIGURATION),
            (VALIDATING, kinds.VALIDATING_CONFIGURATION),
        ):
            with suppress(NotFound):
                await client.delete(resource, name)


def forged(random: Random, victims: list[Object], tenant: World) -> tuple[str, bytes]:
    """One of many lies, and where it is sent."""
    path, live = random.choice(PATHS), random.choice(victims)
    mine, free = tenant.namespace, f"83.118.169.{random.randrange(1, 250)}"
    changes = random.choice(
        (
            {"secret": "my-secret"},
            {"addresses": free},
            {"addresses": address_of(random.choice(victims)), "allow_local_shared_ip": "known"},
            {"ip_family": "dual"},
            {"retention_period_days": "30"},
            {"zone": "other", "addresses": ""},
            {"addresses": f"{free}," * random.randrange(1, 20_000)},
            {"allow_local_shared_ip": "k" * random.randrange(200_000)},
        )
    )
    new = edited(live, None, **changes)
    stale = edited(live, {"resourceVersion": str(random.randrange(1, 10_000))})
    fresh_uid = {"uid": str(uuid.uuid4()), "resourceVersion": None, "name": f"made-up-{random.randrange(40)}"}
    lie = random.randrange(10)
    if lie == 0:
        elsewhere = edited(new, {"namespace": mine})
        return path, review(
            operation="UPDATE", object=elsewhere, oldObject=live, namespace=live["metadata"]["namespace"]
        )
    if lie == 1:
        return path, review(operation="UPDATE", object=new, oldObject=stale)
    if lie == 2:
        return path, review(operation="UPDATE", object=new)
    if lie == 3:
        return path, review(object=edited(new, {"uid": str(uuid.uuid4())}))
    if lie == 4:
        return path, review(object=edited(new, {**fresh_uid, "namespace": mine}))
    if lie == 5:
        old = edited(live, {"uid": str(uuid.uuid4())})
        return path, review(operation="UPDATE", object=new, oldObject=old)
    if lie == 6:
        return path, review(operation="DELETE", object=new, oldObject=live)
    if lie == 7:
        return path, random.choice(malformed(random, live))
    if lie == 8 and random.random() < 0.1:
        return path, review(object=new, padding="x" * random.randrange(4 * 1024 * 1024, 5 * 1024 * 1024))
    return path, review(operation="UPDATE", object=edited(new, {"name": "nobody"}), oldObject=live)


def malformed(random: Random, live: Object) -> list[bytes]:
    whole = review(operation="UPDATE", object=live, oldObject=live)
    return [
        whole[: random.randrange(len(whole))],
        b"[" * 100_000,
        review(object={"metadata": {"name": 7, "namespace": []}}),
        review(object={"metadata": {"name": "x", "namespace": "y", "annotations": {kinds.ADDRESSES: 1}}}),
        json.dumps({"kind": "AdmissionReview"}).encode(),
        random.randbytes(1000),
    ]


async def test_t35_made_up_reviews_change_nothing(
    cluster: DevCluster, tmp_path: Path, seed: int, tried: Callable[[int], None]
) -> None:
    """T35: 500 forged, stale, replayed and oversized reviews: every victim keeps its address alone and with
    its secret, what was asked for in vain comes back, no secret is told, and the operator is never held up.
    """
    random, canary = Random(seed), f"canary{uuid.uuid4().hex}"
    webhook_url, port = f"https://127.0.0.1:{free_port()}", free_port()
    with running_api(tmp_path) as api:
        settings = settings_of(
            kubeconfig=cluster.kubeconfig,
            dialects=("vitistack",),
            webhook_url=webhook_url,
            api_url=api.url,
            health_listen=f"127.0.0.1:{port}",
            vitistack_pending_seconds=4.0,
            vitistack_heartbeat_seconds=1.0,
        )
        log_file = tmp_path / "operator.log"
        async with (
            prepared(cluster) as client,
            unhooked(client),
            operator(settings, log_file) as child,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
        ):
            victim, tenant = (
                await fresh(World(client, api, ""), "victim"),
                await fresh(World(client, api, "")),
            )
            await serves(victim)
            await victim.secret("canary", canary)
            await tenant.secret()
            for number in range(6):
                word = "canary" if number % 2 else "default"
                wishes = {"secret": word, "retention-period-days": "1"}
                await victim.create(f"web-{number}", annotations=wishes)
                await victim.rested(f"web-{number}")
            victims = await victim.services()
            history, records = victim.history(), await kept_by(victim)
            forger = Forger(webhook_url, session)
            held: list[float] = []
            said: list[Said] = []
            looking = asyncio.create_task(look(child, f"http://127.0.0.1:{port}/healthz", held))
            limit = asyncio.Semaphore(AT_ONCE)

            async def one() -> None:
                async with limit:
                    said.append(await forger.send(*forged(random, victims, tenant)))

            await asyncio.gather(*(one() for _ in range(REVIEWS)))
            assert not looking.done(), looking.exception()
            looking.cancel()
            assert not [one for one in said if one.status >= 500], Counter(one.status for one in said)
            assert max(held) < HELD_SECONDS, f"held up {max(held):.3f} s, looked {len(held)} times"

            async def has_lapsed() -> bool:
                return not api.of_namespace(tenant.namespace_id)

            assert await eventually(has_lapsed, 60)
            assert victim.history() == history
            assert await kept_by(victim) == records
            default = await victim.default_secret()
            for number, live in enumerate(victims):
                address = address_of(live)
                assert api.holders(address) == 1
                assert await victim.opens(address, canary if number % 2 else default, f"web-{number}")
            seen = [log_file.read_text(), *(one.text for one in said)]
            assert not [text[:80] for text in seen for value in (canary, default, VALUE) if value in text]
            await emptied(victim)
            await emptied(tenant)
    tried(REVIEWS)


async def kept_by(world: World) -> list[tuple[str, str]]:
    mine = (one for one in await world.records() if one["data"]["namespace"] == world.namespace)
    return sorted((one["metadata"]["name"], str(one["data"])) for one in mine)
