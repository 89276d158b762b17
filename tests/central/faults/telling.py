"""What the API tells and believes: a secret that must be nowhere, and events that must not count."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from tests.support.central import CLUSTER, OTHER_SECRET, SECRET, Reply, World, request_body
from tests.support.eventually import eventually
from tests.support.started import PROGRAM, Neighbour, api_process

from berth.central.integrations.ror import Listener
from berth.central.settings import Ror

Start = Callable[..., AbstractAsyncContextManager[World]]
A, B = "83.118.168.10/32", "83.118.168.11/32"
NONSENSE = (
    "data: {broken\n\n",
    "event: cluster.deleted\ndata: {}\n\n",
    'event: cluster.deleted\ndata: {"cluster_id": ["a"]}\n\n',
    f'event: cluster.created\ndata: {{"cluster_id": "{CLUSTER}"}}\n\n',
    f'data: {{"event": "time", "data": "event: cluster.deleted {CLUSTER}"}}\n\n',
    "event: cluster.deleted\ndata: ' OR 1=1 --\n\n",
    "event: cluster.deleted\ndata: " + "x" * 5000 + "\n\n",
)


async def canary(folder: Path, program: str = PROGRAM) -> None:
    secret = f"canary-{time.time_ns()}"
    (folder / "hec").write_text("token-" + secret)
    flags = ["--splunk-url", "http://127.0.0.1:1", "--splunk-token-file", "hec", "--splunk-index", "i"]
    listed = [request_body(secret=secret, address="83.118.168.0"), request_body(secret=secret, zone=secret)]
    answers = []
    with api_process(folder, *flags, "--log-level", "debug", program=program) as api:
        async with aiohttp.ClientSession() as session:
            for body in (
                request_body(secret=secret),
                request_body("y", secret=secret, address="83.118.168.0"),
                request_body("y", secret=SECRET, new_secret=secret),
                request_body(secret=secret, zone="mars"),
                request_body(SECRET=secret, secret="short"),
                {"secret": secret, "service": secret},
                {"deep": [{"secret": secret}]},
                {"cluster_id": CLUSTER, "epoch": "e", "sequence": 1, "addresses": listed},
            ):
                for method, path in (
                    ("POST", "/v2/address"),
                    ("DELETE", "/v2/service"),
                    ("DELETE", "/v2/cluster"),
                    ("POST", "/v2/inventory"),
                ):
                    async with session.request(method, api.url + path, json=body) as response:
                        answers.append(await response.text())
            for raw in (f'{{"secret": "{secret}",}}', secret, f'{{"secret": {secret}}}'):
                async with session.post(api.url + "/", data=raw) as response:
                    answers.append(await response.text())
            async with session.get(api.url + "/metrics") as response:
                answers.append(await response.text())
        assert api.stop() == 0
    (folder / "hec").unlink()
    assert secret not in "".join(answers), "I6: an answer tells a secret"
    assert hits(folder, secret) == [], "I6: a file has a secret"


def hits(folder: Path, secret: str) -> list[str]:
    return [
        file.name for file in folder.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()
    ]


@asynccontextmanager
async def listening(world: World, ror: Neighbour, tmp_path: Path, **more: Any) -> AsyncIterator[None]:
    (tmp_path / "key").write_text("ror-key\n")
    settings = Ror(ror.url, token_file=tmp_path / "key", silence_seconds=5, **more)
    task = asyncio.create_task(Listener(settings, world.ledger.engine, world.api.metrics).listen_forever())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def populate(world: World) -> None:
    await world.post("x", address=A, retention=1)
    await world.post("y", address=A, deny=True)
    await world.post("z", address=A, cluster="other-cluster")


async def active(world: World) -> list[str]:
    return sorted(name for name, entry in (await world.entries(A)).items() if entry.active)


def results(world: World, result: str, kind: str = "cluster.deleted") -> float:
    labels = {"result": result, "type": kind}
    return world.api.metrics.registry.get_sample_value("berth_ror_events_total", labels) or 0.0


def frame(number: int, cluster: str = CLUSTER) -> str:
    return f'id: {number}\nevent: cluster.deleted\ndata: {{"cluster_id": "{cluster}"}}\n\n'


async def forged_events(world: World, ror: Neighbour, folder: Path) -> int:
    """Nonsense and repetition, among them one event that counts once, and not for who denies it. Returns how
    many of them must not count.
    """
    await populate(world)
    async with listening(world, ror, folder):
        nonsense = NONSENSE * 71
        ror.say("events", "".join(nonsense) + frame(9))
        await eventually(lambda: _left(world, "x"))
        assert await active(world) == ["y", "z"], "an unauthorised change"
        assert (await world.post("x", retention=1)).address == A
        ror.say("events", "".join(nonsense) + frame(9) + frame(9) + frame(10, "last"))
        await eventually(lambda: _unknown(world))
    assert results(world, "repeated") >= 1
    assert await active(world) == ["x", "y", "z"], "an unauthorised change"
    return 2 * len(nonsense)


async def _left(world: World, name: str) -> bool:
    return name not in await active(world)


async def _unknown(world: World) -> bool:
    return results(world, "unknown") > 0


async def report(world: World, sequence: int, *items: dict[str, Any], **changes: Any) -> Reply:
    """An operator's report of its cluster."""
    body = {"cluster_id": CLUSTER, "epoch": "one", "sequence": sequence, "addresses": list(items)}
    return await world.send("POST", "/v2/inventory", body | changes)


async def two_operators(start: Start) -> None:
    """While a copy of a cluster is alive as well, nothing of it is released, in no replica."""
    async with start() as world, start() as replica:
        for name, address in (("a", A), ("b", B)):
            await world.post(name, address=address)
        both = (request_body("a", address=A), request_body("b", address=B))
        assert not (await report(world, 7, *both, epoch="original")).body["frozen"]
        await report(world, 1, *both, epoch="copy")
        for one in (world, replica):
            for reply in (
                await one.delete("a", address=A),
                await one.post("a", address=A, new_secret=OTHER_SECRET),
                await one.release_cluster(),
            ):
                assert (reply.status, reply.body.get("reason")) == (409, "ClusterFrozen"), (
                    "released by a copy"
                )
            assert (await one.post("a", address=A, retention=3)).status == 200
        await _one_falls_silent(world, replica, both)


async def _one_falls_silent(world: World, replica: World, both: tuple[dict[str, Any], ...]) -> None:
    await world.sweep()
    assert world.api.metrics.registry.get_sample_value("berth_clusters_frozen") == 1
    for address in (A, B):
        assert all(entry.active for entry in (await world.entries(address)).values())
    for one in (world, replica):
        await one.listen(seconds=80)  # the copy goes on, the original is silent …
    await report(world, 2, *both, epoch="copy")
    assert (await replica.delete("a", address=A)).status == 409
    for one in (world, replica):
        await one.listen(seconds=20)  # … for one and a half heartbeats
    assert (await replica.delete("a", address=A)).status == 200
