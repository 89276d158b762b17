"""Rows of the fault bench that concern the vitistack operator, with their short numbers."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import uuid
from collections.abc import Callable
from io import StringIO
from typing import Any

import aiohttp
import pytest
from tests.support.operator import eventually
from tests.support.vitistack import (
    SYSTEM,
    World,
    address_of,
    service,
)

from berth import log
from berth.control.events import EVENTS
from berth.dialects.vitistack import kinds

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]
KEYS, COPIES, GROUP = 25, 20, 5


def asking(world: World, name: str) -> dict[str, Any]:
    """The mutating review of a create, as the API server sends it."""
    request = {
        "uid": str(uuid.uuid4()),
        "kind": {"group": "", "version": "v1", "kind": "Service"},
        "resource": {"group": "", "version": "v1", "resource": "services"},
        "namespace": world.namespace,
        "name": name,
        "operation": "CREATE",
        "userInfo": {"username": "tester"},
        "object": service(name, world.namespace),
        "oldObject": None,
        "dryRun": False,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def test_the_same_review_many_times_is_one_address(
    world: World, seed: int, tried: Callable[[int], None]
) -> None:
    """T21: 500 reviews, 20 of each Service, parallel and out of order: one address per key, the same in
    every answer. A few Services at a time: what is pending lapses soon here.
    """
    assert world.operator is not None
    url = world.operator.settings.webhook_url + kinds.MUTATE_PATH
    names = [f"web-{number}" for number in range(KEYS)]
    limit = asyncio.Semaphore(8)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:

        async def ask(name: str) -> tuple[str, str]:
            async with limit, session.post(url, json=asking(world, name)) as response:
                return name, patched_address((await response.json())["response"])

        for at in range(0, KEYS, GROUP):
            asked = names[at : at + GROUP] * COPIES
            random.Random(seed + at).shuffle(asked)
            answers = set(await asyncio.gather(*map(ask, asked)))
            assert len(answers) == len({address for _, address in answers}) == GROUP
            assert {address for _, address in answers} <= set(world.api.of_namespace(world.namespace_id))

    async def has_lapsed() -> bool:
        return not world.api.of_namespace(world.namespace_id)

    assert await eventually(has_lapsed, 60)
    tried(KEYS * COPIES)


def patched_address(answer: dict[str, Any]) -> str:
    assert answer["allowed"]
    steps = json.loads(base64.b64decode(answer["patch"]))
    (annotations,) = (step["value"] for step in steps if step["path"] == "/metadata/annotations")
    return str(annotations[kinds.ADDRESSES]).partition("/")[0]


async def test_no_secret_leaves_its_place(world: World, tried: Callable[[int], None]) -> None:
    """T28: a canary in a user's Secret is in no log, record, Event, message or database."""
    canary, second = f"canary{uuid.uuid4().hex}", f"canary{uuid.uuid4().hex}"
    heard = StringIO()
    log.configure("debug", heard)
    try:
        await used(world, canary, second)
    finally:
        log.configure("info")
    assert world.namespace in heard.getvalue(), "nothing was heard of what was done"
    seen = [heard.getvalue(), str((await world.client.list(kinds.CONFIG_MAP, SYSTEM)).items)]
    seen.append(str((await world.client.list(EVENTS)).items))
    files = [path for path in world.api.folder.iterdir() if path.is_file()]
    seen += [path.read_bytes().decode(errors="replace") for path in files]
    for value in (canary, second):
        assert not [text[:80] for text in seen if value in text]
    tried(1)


async def used(world: World, canary: str, second: str) -> None:
    """Registered with one secret, rotated to the other, tried by somebody else, and released."""
    await world.secret(value=canary)
    await world.secret("other", second)
    made = await world.create(annotations={"secret": "my-secret"})
    await world.annotate(secret="other")
    await world.refused("thief", annotations={"addresses": address_of(made)})
    await world.delete()

    async def is_released() -> bool:
        return not world.api.of_namespace(world.namespace_id)

    assert await eventually(is_released, 60)
