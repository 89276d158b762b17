"""What the outages' tests ask the IPAM-API for, and how a good client asks."""

from __future__ import annotations

import asyncio

from tests.support.central import CLUSTER, NAMESPACE
from tests.support.eventually import eventually

from berth.central.client import AddressCall, ApiClient
from berth.errors import ApiError
from berth.leasing.holders import Identity
from berth.secret import Secret

END_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'berth'"


def asked(name: str, address: str = "") -> AddressCall:
    return AddressCall(
        Identity(name, NAMESPACE, CLUSTER), "hnet-private", "ipv4", Secret("SuperSecret"), address
    )


async def until_answered(client: ApiClient, ask: AddressCall) -> str:
    """As any good client: no answer, or not now, means ask again."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await client.register(ask)
            except ApiError:
                await asyncio.sleep(0.01)


async def grown(answered: dict[str, str]) -> None:
    before = len(answered)

    async def more() -> bool:
        return len(answered) > before + 20

    await eventually(more, 60)
