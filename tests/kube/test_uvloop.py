"""The operator runs on uvloop where it is to be had; its sockets differ in small things: the faults again."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.kube.certificates import Authority
from tests.kube.scripted import CONFIGMAPS, STREAM_HEAD, answer, configmap, cut, scripted, silence

from berth.errors import Unreachable
from berth.kube.auth import Credentials
from berth.kube.client import Client
from berth.kube.http.tls import Pem, ServerTrust
from berth.kube.identity import Fixed
from berth.kube.kubeconfig import Context

FOUND = answer(200, configmap("a", 1))


def on_uvloop(scenario: Coroutine[Any, Any, None]) -> None:
    uvloop.run(scenario)


def test_requests_over_tls_reuse_their_connection(tmp_path: Path) -> None:
    authority = Authority()
    tls = authority.server(tmp_path, "127.0.0.1")

    async def scenario() -> None:
        async with scripted(*[FOUND] * 3, tls=tls) as server:
            context = Context(
                f"https://127.0.0.1:{server.port}", ServerTrust(Pem(data=authority.pem)), Fixed()
            )
            async with Client(Credentials(context)) as client:
                for _ in range(3):
                    await client.get(CONFIGMAPS, "a", "default")
            assert server.connections == 1

    on_uvloop(scenario())


def test_cuts_and_timeouts_are_unreachable() -> None:
    async def scenario() -> None:
        script = [cut(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"), silence(), FOUND]
        async with scripted(*script) as server, Client(server.credentials(), timeout_seconds=1.0) as client:
            for _ in range(2):
                with pytest.raises(Unreachable):
                    await client.create(CONFIGMAPS, configmap("a", 0))
            assert await client.get(CONFIGMAPS, "a", "default") == configmap("a", 1)

    on_uvloop(scenario())


def test_a_silent_stream_is_unreachable() -> None:
    async def scenario() -> None:
        async with scripted(silence(STREAM_HEAD)) as server, Client(server.credentials()) as client:
            events = client.watch(CONFIGMAPS, resource_version="1", timeout_seconds=60, silence_seconds=0.05)
            with pytest.raises(Unreachable):
                await anext(events)

    on_uvloop(scenario())
