"""`berth bench kubipam`: requests served a second, beside the ceiling of their writes.

Both modes, for single addresses and for mixed lengths. The ceiling makes the two writes which every request
costs (finalizer, status); the groups' writes of the range are the operator's own overhead and not in it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bench.cluster import Scenario, collect, run_scenario
from berth.dialects.kubipam import kinds
from berth.dialects.kubipam.crds import crds
from berth.dialects.kubipam.translate import granted
from berth.kube import patch
from berth.kube.client import Client, PatchKind
from berth.net import Block, Family, block_at

Object = dict[str, Any]
RANGE = "bench"
FIRST = 10 << 24  # 10.0.0.0
SINGLE = (32,)
MIXED = (32, 28, 30, 24, 31, 29, 32, 27)


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    mode: str
    lengths: tuple[int, ...]


LOADS = (
    Load("kubipam", kinds.FIRST_MATCH, SINGLE),
    Load("kubipam-round-robin", kinds.ROUND_ROBIN, SINGLE),
    Load("kubipam-mixed", kinds.FIRST_MATCH, MIXED),
    Load("kubipam-mixed-round-robin", kinds.ROUND_ROBIN, MIXED),
)


def run(sizes: tuple[int, ...] = (200, 1000), loads: tuple[Load, ...] = LOADS) -> Iterator[Object]:
    return collect(_run(sizes, loads))


async def _run(sizes: tuple[int, ...], loads: tuple[Load, ...]) -> AsyncIterator[Object]:
    for load in loads:
        async for result in run_scenario(scenario(load), sizes):
            yield result


def scenario(load: Load) -> Scenario:
    return Scenario(
        name=load.name,
        dialect="kubipam",
        crds=crds,
        claims=kinds.REQUEST,
        claim=lambda namespace, number: _request(load, namespace, number),
        is_bound=lambda request: bool((request.get("status") or {}).get("cidr")),
        prepare=_prepare(load),
        writes=_writes(load),
    )


def _prepare(load: Load) -> Callable[[Client, str], Awaitable[None]]:
    async def prepare(client: Client, namespace: str) -> None:
        body = {
            "apiVersion": kinds.RANGE.api_version,
            "kind": "IPAMRange",
            "metadata": {"name": RANGE, "namespace": namespace},
            "spec": {"ranges": ["10.0.0.0/8"], "mode": load.mode},
        }
        await client.create(kinds.RANGE, body, namespace)

    return prepare


def _request(load: Load, namespace: str, number: int) -> Object:
    return {
        "apiVersion": kinds.REQUEST.api_version,
        "kind": "IPAMRequest",
        "metadata": {"name": f"request-{number}", "namespace": namespace},
        "spec": {"ipam": {"name": RANGE}, "size": load.lengths[number % len(load.lengths)]},
    }


def _writes(load: Load) -> Callable[[Client, Object, int], Awaitable[None]]:
    """The operator's two writes for one request."""

    async def write(client: Client, request: Object, number: int) -> None:
        namespace, name = request["metadata"]["namespace"], request["metadata"]["name"]
        block = _block(load, number)
        steps = patch.add_finalizer(request, kinds.FINALIZER) or []
        steps += patch.set_annotation(request, kinds.CIDR, str(block))
        held = await client.patch(kinds.REQUEST, name, steps, namespace, kind=PatchKind.JSON)
        body = {"status": granted(held, block, datetime.now(UTC))}
        await client.patch(
            kinds.REQUEST, name, patch.guarded(body, held, uid=True), namespace, subresource="status"
        )

    return write


def _block(load: Load, number: int) -> Block:
    return block_at(Family.V4, FIRST + (number << 8), load.lengths[number % len(load.lengths)])


if __name__ == "__main__":
    import sys

    import orjson

    chosen = tuple(int(word) for word in sys.argv[1:] if word.isdigit()) or (200, 1000)
    named = tuple(load for load in LOADS if load.name in sys.argv[1:]) or LOADS
    for line in run(chosen, named):
        print(orjson.dumps(line).decode(), flush=True)
