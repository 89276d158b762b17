"""keyring: replicas agree on one ring in a Secret, however they meet."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.fake_api import FakeApi
from tests.support.virtual import run

from berth.control.ca_store import SECRETS, OwnKeyring, Recipe, SharedKeyring, decode, encode
from berth.control.certs import server_context
from berth.control.x509 import Policy
from berth.errors import Unreachable

START = datetime(2030, 1, 1, tzinfo=UTC)
RECIPE = Recipe(("berth.example.svc",), Policy(), lambda: START)


def at(**later: float) -> Recipe:
    return replace(RECIPE, now=lambda: START + timedelta(**later))


def shared(server: FakeApi, recipe: Recipe = RECIPE) -> SharedKeyring:
    return SharedKeyring(server.link(), "berth", "berth-webhook", recipe)


def secret_data(server: FakeApi) -> dict[str, str]:
    data: dict[str, str] = server.stored(SECRETS, "berth-webhook", "berth")["data"]
    return data


def test_replicas_that_start_together_serve_under_one_authority() -> None:
    async def main() -> None:
        server = FakeApi()
        materials = await asyncio.gather(*(shared(server).load() for _ in range(5)))
        assert len(set(materials)) == 1
        assert [verb for verb, _ in server.writes] == ["create"]

    run(main())


def test_a_later_replica_reads_what_is_there_and_writes_nothing() -> None:
    async def main() -> None:
        server = FakeApi()
        first = await shared(server).load()
        assert await shared(server, at(days=10)).load() == first
        assert len(server.writes) == 1

    run(main())


def test_replicas_that_renew_together_agree_on_the_winner() -> None:
    async def main() -> None:
        server = FakeApi()
        first = await shared(server).load()
        materials = await asyncio.gather(*(shared(server, at(days=70)).load() for _ in range(5)))
        assert len(set(materials)) == 1
        assert materials[0].certificate != first.certificate
        assert materials[0].bundle == first.bundle
        assert [verb for verb, _ in server.writes] == ["create", "replace"]

    run(main())


@pytest.mark.parametrize(
    "damage",
    [
        {"tls.crt": ""},
        {"tls.key": base64.b64encode(b"no key").decode()},
        {"ca.key": base64.b64encode(b"no key").decode()},
        {"ca.crt": "!!"},
        {"ca.key": None},
    ],
)
def test_a_damaged_secret_is_replaced(damage: dict[str, str | None]) -> None:
    async def main() -> None:
        server = FakeApi()
        await shared(server).load()
        stored = server.stored(SECRETS, "berth-webhook", "berth")
        stored["data"] = {k: v for k, v in (stored["data"] | damage).items() if v is not None}
        server.swap(SECRETS, stored)
        material = await shared(server).load()
        assert server_context(material)
        assert decode(secret_data(server)).bundle == material.bundle
        assert (await shared(server, at(days=70)).load()).bundle == material.bundle, "and can be renewed"

    run(main())


def test_an_outage_comes_out_as_such() -> None:
    async def main() -> None:
        link = FakeApi().link()
        link.down = True
        with pytest.raises(Unreachable):
            await SharedKeyring(link, "berth", "berth-webhook", RECIPE).load()

    run(main())


def test_what_is_written_into_the_secret_can_be_read_back() -> None:
    old = RECIPE.new()
    ring = at(days=3000).renewed(old)
    assert len(ring.authorities) == 2
    assert decode(encode(ring)) == ring


def test_a_ring_in_memory_is_renewed_in_its_time() -> None:
    async def main() -> None:
        clock = [START]
        own = OwnKeyring(replace(RECIPE, now=lambda: clock[0]))
        first = await own.load()
        assert await own.load() == first
        clock[0] += timedelta(days=61)
        later = await own.load()
        assert later.certificate != first.certificate
        assert later.bundle == first.bundle

    run(main())
