"""A client that talks to a scripted server, and waits without letting time pass."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.kube.scripted import Reply, Server, scripted

from berth.kube.client import Client
from berth.kube.retry import Retry


class Waits:
    """A sleep that only takes notes."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@asynccontextmanager
async def talking(*script: Reply, **options: Any) -> AsyncIterator[tuple[Client, Server]]:
    async with scripted(*script) as server, Client(server.credentials(), **options) as client:
        yield client, server


def patient(waits: Waits) -> Retry:
    return Retry(sleep=waits, jitter=lambda low, _: low)
