"""MetalLB's pools: who waits is written with others, who gives up is not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from berth.control.batching import LoadGauge
from berth.control.cache import Cache
from berth.control.informers import Informer
from berth.dialects.vitistack import kinds
from berth.dialects.vitistack.pools import MetalLbPools, watched
from berth.net import Address, Family

Object = dict[str, Any]
A, B, C = (Address(Family.V4, 0x0A000001 + number) for number in range(3))


class Server:
    """Keeps one pool; while the door is closed nothing is answered."""

    def __init__(self) -> None:
        self.pool: Object = {}
        self.asked = asyncio.Event()
        self.door = asyncio.Event()

    async def create(self, resource: Any, body: Object, namespace: str) -> Object:
        return await self._stored(body)

    async def patch(self, resource: Any, name: str, body: Object, namespace: str, **how: Any) -> Object:
        annotations = {
            **self.pool["metadata"].get("annotations", {}),
            **body["metadata"].get("annotations", {}),
        }
        about = {**self.pool["metadata"], "annotations": annotations}
        return await self._stored({**self.pool, "metadata": about, "spec": body["spec"]})

    async def _stored(self, body: Object) -> Object:
        self.asked.set()
        await self.door.wait()
        version = int(self.pool.get("metadata", {}).get("resourceVersion", "0")) + 1
        about = {**body["metadata"], "uid": "u", "resourceVersion": str(version)}
        self.pool = {**body, "metadata": about}
        return self.pool

    @property
    def listed(self) -> list[str]:
        return list(self.pool["spec"]["addresses"])


@pytest.mark.parametrize("merged", [(), ("10.0.0.1-10.0.0.3",)])
async def test_a_pool_that_is_not_ours_keeps_one_entry_of_all_that_leave_together(
    merged: tuple[str, ...],
) -> None:
    """MetalLB refuses an empty pool, and nobody would look for the others again."""
    server: Any = Server()
    server.door.set()
    listed = merged or ("10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32")
    about = {"namespace": "metallb-system", "name": "inet", "uid": "u", "resourceVersion": "1"}
    annotations = {"annotations": {kinds.MERGED: ",".join(merged)}} if merged else {}
    server.pool = {"metadata": {**about, **annotations}, "spec": {"addresses": list(listed)}}
    cache = Cache()
    cache.put(server.pool)
    kept = Informer(watched("metallb-system"), cache, server)
    pools = MetalLbPools(kept, "metallb-system", LoadGauge())
    await asyncio.gather(*(pools.remove("inet", one, lambda: False) for one in (A, B, C)))
    assert len(server.listed) == 1


async def test_who_gives_up_waiting_leaves_no_entry_behind() -> None:
    """Its record is undone in the end, and no later write may bring the address back."""
    server: Any = Server()
    kept = Informer(watched("metallb-system"), Cache(), server)
    pools = MetalLbPools(kept, "metallb-system", LoadGauge())
    writing = asyncio.create_task(pools.add("inet", (A,)))
    await server.asked.wait()
    waiting = asyncio.create_task(pools.add("inet", (B,)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    server.door.set()
    await writing
    await pools.add("inet", (C,))
    assert server.listed == ["10.0.0.1/32", "10.0.0.3/32"]
