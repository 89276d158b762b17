"""A pod that sends the webhooks reviews of which some part is not what it should be: a number for a text, a
text for a list, a quarter of a megabyte for a word. And a user who writes the same into a file.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from tests.support.every_webhook import EVERY, Asked, enveloped
from tests.support.forging import Forger
from tests.support.operator import crds_of, install
from tests.support.vitistack import Api, World, emptied, fresh, operating, prepared

from berth import manifests as make
from berth.devcluster import DevCluster
from berth.errors import Invalid, KubeError

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]
Object = dict[str, Any]
Place = tuple[str | int, ...]
AT_ONCE = 8
TRIES = 300  # of each webhook, for CREATE and UPDATE together
LONG, SPACED = "echo" * 62_500, "echo " * 50_000
ECHOES = ("echo" * 75, "echo " * 60)  # more of them than an answer may repeat
ODD: tuple[Any, ...] = (
    *(None, True, 5, -1, 2**63, 1e300, "x", "", LONG, SPACED, "\x00", "10.0.0.300", "::ffff:10.0.0.1"),
    *(
        [],
        {},
        [1],
        ["x"],
        [None],
        [[]],
        [LONG],
        [SPACED],
        {"a": 1},
        {"a": None},
        {"a": []},
        {LONG: LONG},
        {"": ""},
    ),
    *([{"start": 5}], [{"start": ["x"], "end": {}}], [{"subnet": 7}], [{"subnet": LONG}], [{"start": LONG}]),
    *([{"dnsServers": 5}], [{"dnsServers": [1]}], [{"prefix": "x", "start": "10.0.0.1"}], [{"ip": {}}]),
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """All dialects in one operator."""
    folder: Path = tmp_path_factory.mktemp("api")
    api = Api(folder)
    api.start()
    try:
        async with prepared(cluster) as client:
            await install(client, crds_of(*make.EVERY))
            chosen = {"dialects": make.EVERY, "vip_classes": ("paas.org/vip",)}
            async with operating(cluster, api, **chosen) as operator:
                made = await fresh(World(client, api, "", operator), "shapes")
                yield made
                await emptied(made)
    finally:
        api.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def forger(world: World) -> AsyncIterator[Forger]:
    assert world.operator is not None
    url = f"https://127.0.0.1:{world.operator.listening.webhook}"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
        yield Forger(url, session)


def places(part: Any, here: Place = ()) -> Iterator[Place]:
    """Everything that can be replaced, at every depth."""
    pairs = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in pairs:
        yield (*here, key)
        yield from places(value, (*here, key))


def with_odd(request: Object, place: Place, value: Any) -> Object:
    made = copy.deepcopy(request)
    part: Any = made
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    return made


def annotated(asked: Asked, namespace: str) -> Object:
    """With the annotations that somebody reads; some further fields that are not in the example."""
    new = asked.object(namespace)
    prefix = "ipam.vitistack.io/"
    words = ("addresses", "zone", "secret", "ip-family", "retention-period-days", "deny-external-cleanup")
    new["metadata"]["annotations"] = {"ipAddress": "10.0.0.1", **{prefix + word: "x" for word in words}}
    new["metadata"] |= {"generateName": "o", "finalizers": ["a/b"], "ownerReferences": [{"name": "x"}]}
    new["spec"] |= {"loadBalancerClass": "x", "allocationStrategy": "random"}
    return new


@pytest.mark.parametrize("asked", EVERY, ids=lambda asked: asked.path.strip("/"))
async def test_a_review_with_an_odd_part_is_answered_in_a_sentence(
    world: World, forger: Forger, asked: Asked, seed: int, tried: Callable[[int], None]
) -> None:
    """Never a 500, and never what was sent, in the answer or in the log."""
    random = Random(f"{seed} {asked.path}")
    plain, full = asked.object(world.namespace), annotated(asked, world.namespace)
    bases = [
        asked.request(plain),
        asked.request(full),
        asked.request(full, plain),
        asked.request(plain, full),
    ]
    limit = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        request = random.choice(bases)
        place, value = random.choice(list(places(request))), random.choice(ODD)
        body = enveloped(with_odd(request, place, value))
        async with limit:
            said = await forger.send(asked.path, body)
        about = (request["operation"], place, str(value)[:60], said.status, said.text[:300])
        assert said.status < 500, about
        assert said.code != 500, about
        assert said.allowed or not [echo for echo in ECHOES if echo in said.text], about

    with capture_logs() as lines:
        await asyncio.gather(*(one() for _ in range(TRIES)))
    logged = str(lines)
    assert not [logged.find(echo) for echo in ECHOES if echo in logged]
    tried(TRIES)


@pytest.mark.parametrize(
    "spec",
    [
        *({"pools": odd} for odd in ("x", [1], 5, [{"dnsServers": 5}], [{"start": 5}])),
        *({"dnsServers": odd} for odd in (5, "x", [1])),
        *({"preAllocations": odd} for odd in (5, ["x"], {"a": 1})),
        "x",
        5,
        ["x"],
    ],
    ids=str,
)
async def test_a_user_who_writes_an_odd_pool_is_told_so_by_the_schema_or_by_us(
    world: World, spec: Any
) -> None:
    """The mutating webhook is asked before the schema is: `pools: 5` was an internal error."""
    whole = {"namePrefix": "a", **spec} if isinstance(spec, dict) else spec
    pool = {
        "apiVersion": "ipam.metal3.io/v1alpha1",
        "kind": "IPPool",
        "metadata": {"name": "odd"},
        "spec": whole,
    }
    path = f"/apis/ipam.metal3.io/v1alpha1/namespaces/{world.namespace}/ippools"
    with pytest.raises(KubeError) as raised:
        await world.client.raw("POST", path, body=pool)
    told = str(raised.value)
    assert "failed calling webhook" not in told
    assert isinstance(raised.value, Invalid) or "the object cannot be read: spec is not an object" in told
