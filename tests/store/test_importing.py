"""What a command brings in while the API runs: held, released and swept like everything else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from tests.support.central import SECRET, World, request_body, running

from berth.leasing.holders import Entry, Identity
from berth.secret import Secret
from berth.store.importing import import_records
from berth.store.queries import LedgerRecord
from berth.store.rows import AddressRow, HolderRow

POOL = "elsewhere/4"


@pytest_asyncio.fixture
async def world(database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with running(database, tmp_path / "pepper") as found:
        yield found


def record(world: World, address: str, entry: Entry) -> LedgerRecord:
    hashed = world.ledger.rules.pepper.hash(Secret(SECRET))
    return LedgerRecord(
        AddressRow(address, POOL, f"u-{address}", hashed, 1), (HolderRow(address, POOL, entry),)
    )


async def test_a_zone_that_nobody_configured_is_served_and_swept(world: World) -> None:
    """Contract 3.3: a stored address works although its zone is not configured."""
    who = request_body("a")["service"]
    identity = Identity("a", who["namespace_id"], who["cluster_id"])
    lapsed = record(world, "192.0.2.1", Entry(Identity("x", "n", "c"), expires_at=1000))
    held = record(world, "192.0.2.2", Entry(identity))
    await import_records(world.ledger.engine, [lapsed, held])
    await world.sweep()
    await world.sweep()
    assert await world.stored() == ["192.0.2.2"]
    reply = await world.send(
        "DELETE", "/v2/service", request_body("a", zone="elsewhere", address="192.0.2.2")
    )
    assert reply.status == 200
