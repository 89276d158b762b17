"""T26: a secret's replacement with every call lost, before and after its effect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tests.support.operator import eventually
from tests.support.vitistack import Api, World, address_of, emptied, fresh, operating, prepared

from berth.devcluster import DevCluster
from berth.errors import StatusError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]


@dataclass(slots=True)
class Cutter:
    """Between operator and IPAM-API: loses the n-th call, on the way there or on the way back."""

    target: str
    lose: int = 0
    before: bool = True
    calls: int = 0
    session: aiohttp.ClientSession | None = field(default=None, repr=False)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.calls += 1
        lost = self.calls == self.lose
        assert self.session is not None
        if lost and self.before:
            return _cut(request)
        async with self.session.request(
            request.method, self.target + request.path.removeprefix("/v2"), data=await request.read()
        ) as answer:
            body = await answer.read()
        return (
            _cut(request)
            if lost
            else web.Response(status=answer.status, body=body, content_type="application/json")
        )


def _cut(request: web.BaseRequest) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@asynccontextmanager
async def cutting(api: Api) -> AsyncIterator[tuple[Cutter, str]]:
    async with aiohttp.ClientSession() as session:
        cutter = Cutter(api.url, session=session)
        runner = web.ServerRunner(web.Server(cutter, access_log=None))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            port = runner.addresses[0][1]
            yield cutter, f"http://127.0.0.1:{port}/v2"
        finally:
            await runner.cleanup()


async def test_a_rotation_cut_at_every_call_leaves_one_owner(cluster: DevCluster, tmp_path: Path) -> None:
    """T26, T14: dual stack, each call lost before and after its effect; the Service owns both, then none."""
    api = Api(tmp_path)
    api.start()
    try:
        async with (
            prepared(cluster) as client,
            cutting(api) as (cutter, url),
            operating(cluster, api, api_url=url, vitistack_pending_seconds=1.0),
        ):
            for lose in range(1, 4):
                for before in (True, False):
                    world = await fresh(World(client, api, ""))
                    await world.secret()
                    made = await world.create(annotations={"ip-family": "dual"})
                    cutter.calls, cutter.lose, cutter.before = 0, lose, before
                    with suppress(StatusError):  # refused, or done: both are fine, half done is not
                        await world.annotate(secret="my-secret")
                    cutter.lose = 0
                    await world.annotate(retention_period_days="0", deny_external_cleanup="true")
                    for address in address_of(made).split(","):
                        assert api.entries(address)["my-service"].active, (lose, before)
                    await world.delete()

                    async def is_released(world: World = world) -> bool:
                        return not api.of_namespace(world.namespace_id)

                    assert await eventually(is_released, 40), (lose, before)
                    await emptied(world)
    finally:
        api.stop()
