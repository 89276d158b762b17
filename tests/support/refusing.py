"""Another's webhook on Services, which refuses whatever ours said of them, or never answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from tests.support.operator import eventually
from tests.support.started import free_port
from tests.support.vitistack import World

from berth.control.webhooks import VALIDATING
from berth.errors import StatusError

Act = Callable[[], Awaitable[object]]
CONFIGURATION, WEBHOOK = "zzz-refuses", "no.example.com"


def is_theirs(error: object) -> bool:
    return WEBHOOK in str(error)


@asynccontextmanager
async def refusing(world: World, operation: str = "CREATE", port: int = 0) -> AsyncIterator[None]:
    """While the block lasts; the API server may take notice a little later."""
    await _register(world, operation, port)
    try:
        yield
    finally:
        await world.client.delete(VALIDATING, CONFIGURATION)


async def until_refused(attempt: Act, undo: Act) -> None:
    """The API server has taken notice; what it let through before that is undone."""

    async def is_refused() -> bool:
        try:
            await attempt()
        except StatusError as error:
            return is_theirs(error)
        await undo()
        return False

    assert await eventually(is_refused, 60)


async def _register(world: World, operation: str, port: int) -> None:
    """Registered under a name that sorts last, and nobody answers there, or the
    one at the port. Of dry runs it is not asked: our own would tell us, before anything is spent.
    """
    rule = {
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"], "operations": [operation],
        "scope": "*",
    }  # fmt: skip
    entry = {
        "name": WEBHOOK,
        "clientConfig": {"url": f"https://127.0.0.1:{port or free_port()}/no"},
        "rules": [rule],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 30 if port else 1,
        "matchConditions": [
            {"name": "not-a-dry-run", "expression": "!(has(request.dryRun) && request.dryRun)"}
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
    }
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION},
        "webhooks": [entry],
    }
    await world.client.create(VALIDATING, body)


@dataclass(slots=True)
class Silent:
    """Takes connections and never answers."""

    asked: int = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        with suppress(ConnectionError):
            await reader.read(-1)
        writer.close()
