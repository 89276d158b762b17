"""T38: mounted files change, vanish and are half written under a running API."""

from __future__ import annotations

import asyncio
import hashlib
import random
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from tests.central.faults.mounting import Mounted
from tests.support.authorities import certificate, written
from tests.support.central import CLUSTER, request_body
from tests.support.eventually import eventually
from tests.support.started import ApiProcess, api_process

pytestmark = pytest.mark.faults
FILES = {"zones": "zones", "identities": "identities", "cluster tokens": "tokens", "TLS files": "cert"}
STEADY = "steady"  # the zone, identity and token that all versions of the files have


class Versions:
    """The files with numbers in them: what is new in one is seen from outside."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ca = certificate("ca", None)
        self.ca, _ = written(folder, "ca", self._ca)
        self.files: dict[str, bytes] = {}
        for name in FILES:
            self.next(name, 0)

    def next(self, name: str, number: int) -> None:
        if name == "zones":
            zones = [
                f"{{name: {STEADY}, ipv4: [192.0.2.0/24]}}",
                f"{{name: z{number}, ipv4: [203.0.113.0/24]}}",
            ]
            self.files["zones"] = f"zones: [{', '.join(zones)}]\n".encode()
        elif name == "identities":
            self.files["identities"] = f"identities: [{caller(STEADY)}, {caller(f't{number}')}]\n".encode()
        elif name == "cluster tokens":
            self.files["tokens"] = f"{STEADY}\nt{number}\n".encode()
        else:
            cert, key = written(self._folder, "server", certificate("localhost", self._ca))
            self.files |= {"cert": cert.read_bytes(), "key": key.read_bytes()}


def caller(token: str) -> str:
    digest = hashlib.sha256(token.encode()).hexdigest()
    return f"{{name: {token}, cluster_ids: [{CLUSTER}], token_sha256: {digest}}}"


class Client:
    def __init__(self, api: ApiProcess, ca: Path) -> None:
        self._api = api
        self._tls = ssl.create_default_context(cafile=ca)

    async def post(self, zone: str = STEADY, token: str = STEADY) -> int:
        body = request_body(zone=zone)
        return await self._status("POST", "/v2/address", body, token)

    async def release(self, token: str = STEADY) -> int:
        return await self._status("DELETE", "/v2/cluster", {"cluster_id": "nobody"}, token)

    async def refused(self) -> float:
        async with (
            aiohttp.ClientSession() as session,
            session.get(self._api.url + "/metrics", ssl=self._tls) as response,
        ):
            text = await response.text()
        return next(
            float(line.split()[1]) for line in text.splitlines() if line.startswith("berth_reload_ref")
        )

    def served(self) -> str:
        where = ("127.0.0.1", int(self._api.url.rpartition(":")[2]))
        return ssl.get_server_certificate(where).strip()

    async def _status(self, method: str, path: str, body: object, token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, self._api.url + path, json=body, ssl=self._tls) as response,
        ):
            return response.status


@asynccontextmanager
async def busy(client: Client) -> AsyncIterator[list[int]]:
    """Somebody who asks all the while; whatever becomes of the files, every answer is a yes."""
    got: list[int] = []

    async def ask() -> None:
        while True:
            got.append(await client.post())
            await asyncio.sleep(0.01)

    task = asyncio.create_task(ask())
    try:
        yield got
        assert not task.done(), "a request was dropped"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_t38_files_that_change_vanish_or_are_half_written_stop_nothing(
    tmp_path: Path, times: int, seed: int, tried: Callable[[int], None]
) -> None:
    """T38: 20 times: the old content stays in use and that is told; what is whole again counts by itself."""
    dice = random.Random(seed)
    versions, mounted = Versions(tmp_path), Mounted(tmp_path / "mount")
    mounted.put(**versions.files)
    flags = ["--zones", "zones", "--identities", "identities", "--cluster-token-file", "tokens"]
    flags += ["--tls-cert", "cert", "--tls-key", "key"]
    given = [word if word.startswith("--") else mounted.path(word) for word in flags]
    with api_process(tmp_path, *given, "--reload-seconds", "0.05") as api:
        client = Client(api, versions.ca)
        async with busy(client) as got:
            for number in range(1, 20 * times + 1):
                name = dice.choice(list(FILES))
                before = dict(versions.files)
                versions.next(name, number)
                so_far = len(told(api, name))
                spoil(dice, mounted, before, versions.files, name)
                assert await eventually(client.refused)
                assert len(told(api, name)) > so_far, "what cannot be used is told"
                await works(client, before, name, number, fresh=False)
                mounted.put(**versions.files)
                await eventually(lambda: _none(client))
                await works(client, versions.files, name, number, fresh=True)
                tried(1)
        assert set(got) == {200}
        assert "Traceback" not in api.errors.read_text()


def told(api: ApiProcess, name: str) -> list[str]:
    lines = api.errors.read_text().splitlines()
    return [line for line in lines if "reload refused" in line and f'"files":"{name}"' in line]


async def _none(client: Client) -> bool:
    return await client.refused() == 0


def spoil(
    dice: random.Random, mounted: Mounted, before: dict[str, bytes], after: dict[str, bytes], name: str
) -> None:
    """Gone with all others, gone alone, no text, or half of the new one: in place, or moved there."""
    key = FILES[name]
    rest = {other: text for other, text in before.items() if other != key}
    half = after[key][: len(after[key]) // 2]
    kind = dice.choice(["all gone", "gone", "garbage", "half", "half in place"])
    if kind == "all gone":
        mounted.drop()
    elif kind == "gone":
        mounted.put(**rest)
    elif kind == "garbage" or key == "tokens":  # half of a list of tokens is a list of tokens
        mounted.put(**rest, **{key: b"\xff\xfe"})
    elif kind == "half":
        mounted.put(**rest, **{key: half})
    else:
        Path(mounted.path(key)).write_bytes(half)


async def works(client: Client, files: dict[str, bytes], name: str, number: int, *, fresh: bool) -> None:
    """All that was good is; and what the newest version brings counts if it is `fresh`, else not."""
    assert (await client.post(), await client.release()) == (200, 404)
    if name == "zones":
        assert await client.post(zone=f"z{number}") == (200 if fresh else 400)
    elif name == "identities":
        assert await client.post(token=f"t{number}") == (200 if fresh else 401)
    elif name == "cluster tokens":
        assert await client.release(f"t{number}") == (404 if fresh else 401)
    else:
        assert client.served() == files["cert"].decode().strip()
