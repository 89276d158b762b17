"""The client: what the dialect and the commands see of the API."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.central import CLUSTER, TOKEN, World

from berth.central.client import Access, AddressCall, ApiClient, TokenFile
from berth.errors import ApiDown, ApiRefused, UserError
from berth.leasing.holders import Identity
from berth.secret import Secret

WHO = Identity("web", "namespace", CLUSTER)
ASK = AddressCall(WHO, "inet", "ipv4", Secret("SuperSecret"))


@pytest.mark.parametrize("base", ["", "/v2"])
async def test_it_registers_releases_and_replaces(world: World, base: str) -> None:
    async with ApiClient(Access(world.url + base)) as client:
        address = await client.register(ASK, pending=True)
        assert address == "83.118.168.0/32"
        named = AddressCall(
            WHO, "inet", "ipv4", Secret("SuperSecret"), address="83.118.168.0", retention_days=3
        )
        assert await client.register(named) == address
        assert await client.register(named, new_secret=Secret("NewSecret1")) == address
        with pytest.raises(ApiRefused) as refused:
            await client.release(named)
        assert (refused.value.status, refused.value.why) == (404, "NoMatch")
        await client.release(AddressCall(WHO, "inet", "ipv4", Secret("NewSecret1"), address=address))
        assert await client.ready()


async def test_it_releases_a_cluster_with_a_token(world: World) -> None:
    async with ApiClient(Access(world.url + "/v2", Secret(TOKEN))) as client:
        await client.register(ASK)
        assert (await client.release_cluster(CLUSTER))["expired"] == 1
    async with ApiClient(Access(world.url + "/v2", Secret("wrong"))) as client:
        with pytest.raises(ApiRefused, match="Invalid authentication token"):
            await client.release_cluster(CLUSTER)


async def test_a_token_that_is_replaced_is_sent_from_then_on(world: World, tmp_path: Path) -> None:
    """As the kubelet does it: a link is swapped. Nothing is restarted."""
    (tmp_path / "old").write_text("wrong\n")
    (tmp_path / "new").write_text(f"{TOKEN}\n")
    (tmp_path / "token").symlink_to("old")
    async with ApiClient(Access(world.url + "/v2", TokenFile(tmp_path / "token"))) as client:
        await client.register(ASK)
        with pytest.raises(ApiRefused, match="Invalid authentication token"):
            await client.release_cluster(CLUSTER)
        (tmp_path / "next").symlink_to("new")
        (tmp_path / "next").replace(tmp_path / "token")
        assert (await client.release_cluster(CLUSTER))["expired"] == 1


@pytest.mark.parametrize("content", [None, "", "two\nlines", "\x00"])
async def test_a_token_that_becomes_unreadable_keeps_the_one_before(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "token"
    path.write_text("good")
    token = TokenFile(path)
    path.unlink()
    if content is not None:
        path.write_text(content)
    assert token.bytes == b"good"
    with pytest.raises(UserError, match="The IPAM-API's token cannot be read"):
        TokenFile(path)
    path.write_text("better one")
    assert token.bytes == b"better one"


async def test_no_answer_is_told_apart_from_a_no() -> None:
    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with ApiClient(Access(f"http://127.0.0.1:{port}", seconds=1)) as client:
        with pytest.raises(ApiDown):
            await client.register(ASK)
        assert not await client.ready()
    server.close()
    await server.wait_closed()


def test_a_secret_does_not_show_in_what_is_asked() -> None:
    assert "SuperSecret" not in repr(ASK)
