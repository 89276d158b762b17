"""When no answer comes, or half of one: what the caller is told, and what becomes of the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kube.certificates import Authority
from tests.kube.scripted import (
    CONFIGMAPS,
    WHOLE,
    Reply,
    answer,
    bytes_of,
    configmap,
    cut,
    scripted,
    silence,
)
from tests.kube.talking import talking

from berth import errors
from berth.kube.auth import Credentials
from berth.kube.client import Client
from berth.kube.http.tls import Pem, ServerTrust
from berth.kube.identity import Fixed
from berth.kube.kubeconfig import Context

CUTS = [
    cut(),
    cut(b"HTTP/1.1 200"),
    cut(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}"),
    cut(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}"),
    bytes_of(b"not http at all\r\n\r\n"),
]


@pytest.mark.parametrize("broken", CUTS)
async def test_a_cut_is_unreachable_and_a_write_is_not_sent_again(broken: Reply) -> None:
    async with talking(broken) as (client, server):
        with pytest.raises(errors.Unreachable):
            await client.create(CONFIGMAPS, configmap("a", 0))
    assert len(server.asked) == 1


@pytest.mark.parametrize("verb", ["replace", "delete"])
async def test_a_write_on_a_kept_connection_that_broke_is_not_sent_again(verb: str) -> None:
    """A general HTTP library repeats PUT and DELETE here; the first one may have taken effect."""
    async with talking(answer(200, configmap("a", 1)), cut()) as (client, server):
        await client.get(CONFIGMAPS, "a", "default")
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "replace": lambda: client.replace(CONFIGMAPS, configmap("a", 1)),
            "delete": lambda: client.delete(CONFIGMAPS, "a", "default"),
        }
        with pytest.raises(errors.Unreachable):
            await calls[verb]()
    assert len(server.asked) == 2


async def test_a_read_on_a_kept_connection_that_broke_is_sent_again_on_another() -> None:
    script = [answer(200, configmap("a", 1)), cut(), answer(200, configmap("a", 2))]
    async with talking(*script) as (client, server):
        await client.get(CONFIGMAPS, "a", "default")
        assert await client.get(CONFIGMAPS, "a", "default") == configmap("a", 2)
    assert server.connections == 2


async def test_no_answer_in_time_is_unreachable_and_its_connection_is_not_used_again() -> None:
    script = [silence(b"HTTP/1.1 200 OK\r\n"), answer(200, configmap("a", 1))]
    async with talking(*script, timeout_seconds=1.0) as (client, server):
        with pytest.raises(errors.Unreachable, match="no answer in time"):
            await client.get(CONFIGMAPS, "a", "default")
        assert await client.get(CONFIGMAPS, "a", "default") == configmap("a", 1)
    assert server.connections == 2


async def test_a_silent_connection_makes_us_distrust_the_others() -> None:
    """After a route dies every kept connection is as dead as the first one that is noticed."""
    both = asyncio.Event()

    async def together(line: Any) -> None:
        if len(server.asked) == 2:
            both.set()
        await both.wait()
        await line.say(WHOLE)

    script = [together, together, silence(), answer(200, configmap("a", 1))]
    async with talking(*script, timeout_seconds=1.0) as (client, server):
        await asyncio.gather(*(client.get(CONFIGMAPS, "a", "default") for _ in range(2)))
        with pytest.raises(errors.Unreachable):
            await client.get(CONFIGMAPS, "a", "default")
        await client.get(CONFIGMAPS, "a", "default")
    assert server.connections == 3


async def test_a_cancelled_request_takes_its_connection_with_it() -> None:
    reached = asyncio.Event()

    async def late(line: Any) -> None:
        reached.set()
        await line.until_the_client_leaves()
        left.set()

    left = asyncio.Event()
    async with talking(late, answer(200, configmap("a", 1))) as (client, server):
        task = asyncio.create_task(client.get(CONFIGMAPS, "a", "default"))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(60):
            await left.wait()
        assert await client.get(CONFIGMAPS, "a", "default") == configmap("a", 1)
    assert server.connections == 2


async def test_a_connection_the_server_closes_is_not_used_again() -> None:
    last = bytes_of(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
    async with talking(last, last) as (client, server):
        await client.get(CONFIGMAPS, "a", "default")
        await client.create(CONFIGMAPS, configmap("a", 0))
    assert server.connections == 2


async def test_an_answer_that_is_complete_counts_whatever_happens_to_its_connection() -> None:
    async def last_words(line: Any) -> None:
        await line.say(WHOLE)
        line.cut()

    for _ in range(20):
        async with talking(last_words) as (client, _):
            assert await client.create(CONFIGMAPS, configmap("a", 0)) == {}


async def test_a_write_whose_connection_took_its_time_is_checked_again_before_it_is_sent(
    tmp_path: Path,
) -> None:
    """The lease may be lost while TLS is agreed: the guard speaks right before the bytes leave."""
    leads = True

    def guard() -> None:
        if not leads:
            raise errors.NotLeader("another leads")

    def lose(*_: object) -> None:
        nonlocal leads
        leads = False

    authority = Authority()
    tls = authority.server(tmp_path, "127.0.0.1")
    tls.sni_callback = lose  # called in the middle of the handshake
    async with scripted(answer(201, configmap("a", 1)), tls=tls) as server:
        context = Context(f"https://127.0.0.1:{server.port}", ServerTrust(Pem(data=authority.pem)), Fixed())
        async with Client(Credentials(context), guard=guard) as client:
            with pytest.raises(errors.NotLeader):
                await client.create(CONFIGMAPS, configmap("a", 0))
    assert server.asked == []
