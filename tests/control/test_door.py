"""The admission server as a whole: it listens before it registers, and withdraws at the end."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.kube.scripted import Line, answer, refusal, scripted
from tests.support.reviews import body_of

from berth.control.review import Answer, Review, allowed
from berth.control.webhook_server import WebhookServer
from berth.control.webhooks import Webhook, rule
from berth.devcluster import ports
from berth.errors import UserError
from berth.kube.client import Client
from berth.metrics import Metrics
from berth.settings import Settings

BOXES = Webhook("validate.boxes.test", "/validate", (rule("boxes.test", "v1", ["boxes"], ["CREATE"]),))


async def allow(review: Review) -> Answer:
    return allowed()


async def test_it_listens_then_registers_and_withdraws_at_the_end() -> None:
    port = ports.free(1)[0]
    stored: dict[str, Any] = {}
    served: list[bytes] = []

    async def reply(line: Line) -> None:
        asked = server.asked[-1]
        if asked.method == "POST":
            stored.update(orjson.loads(asked.body))
            stored["metadata"]["resourceVersion"] = "7"
            served.append(await _review(port))  # the server may ask as soon as it knows
        elif asked.method == "DELETE":
            stored.clear()
        await (answer(200, dict(stored) or {"kind": "Status"}) if stored else refusal(404, "NotFound"))(line)

    async with scripted() as server, Client(server.credentials()) as client:
        server.script = [reply] * 100
        async with AsyncExitStack() as stack:
            door = WebhookServer(Settings(webhook_url=f"https://127.0.0.1:{port}"), client, Metrics())
            assert door.not_ready()
            await door.open(stack, {"/validate": allow}, {"berth-boxes": (BOXES,)})
            assert (door.port, door.not_ready()) == (port, "")
            config = stored["webhooks"][0]["clientConfig"]
            assert config["url"] == f"https://127.0.0.1:{port}/validate"
            assert config["caBundle"]
        assert [asked.method for asked in server.asked] == ["GET", "POST", "GET", "DELETE"]
    assert b'"allowed":true' in served[0]
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def _review(port: int) -> bytes:
    """As the API server would send it, without asking whose certificate it is."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    body = body_of()
    head = f"POST /validate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    said = await reader.read()
    writer.close()
    return said


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (Settings(webhook_url="http://127.0.0.1"), "--webhook-url must be https://host:port"),
        (Settings(webhook_url="https://127.0.0.1:99999"), "--webhook-url must be https://host:port"),
        (Settings(webhook_url="https://[::1"), "--webhook-url must be https://host:port"),
        (Settings(webhook_port=9443, webhook_service="berth"), "--webhook-service must be namespace/name"),
        (Settings(webhook_port=9443, webhook_cert_dir=Path("/none")), "Cannot read the certificate /none/"),
    ],
)
async def test_settings_that_make_no_sense_are_one_sentence(settings: Settings, sentence: str) -> None:
    async with scripted() as server, Client(server.credentials()) as client, AsyncExitStack() as stack:
        with pytest.raises(UserError, match=sentence):
            await WebhookServer(settings, client, Metrics()).open(stack, {}, {})
    assert server.asked == []
