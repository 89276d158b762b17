"""Files that change under a running API, as a mounted Secret does: by a link that moves, without a signal."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Awaitable, Iterator
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from tests.central.faults.mounting import Mounted
from tests.support.central import CLUSTER, request_body
from tests.support.eventually import eventually
from tests.support.processes import wait_until
from tests.support.started import ApiProcess, Neighbour, api_process, neighbour

SOON = ("--reload-seconds", "0.1")
ONE = "zones: [{name: one, ipv4: [192.0.2.0/24]}]\n"
TWO = "zones: [{name: one, ipv4: [192.0.2.0/24]}, {name: two, ipv4: [198.51.100.0/24]}]\n"


def identity(token: str) -> str:
    digest = hashlib.sha256(token.encode()).hexdigest()
    return f"identities: [{{name: a, cluster_ids: [{CLUSTER}], token_sha256: {digest}}}]"


async def status(api: ApiProcess, zone: str = "inet", token: str = "", service: str = "s") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body = request_body(service, zone=zone)
    async with (
        aiohttp.ClientSession() as session,
        session.post(api.url + "/v2/address", json=body, headers=headers) as response,
    ):
        return response.status


async def metric(api: ApiProcess, name: str) -> float:
    async with aiohttp.ClientSession() as session, session.get(api.url + "/metrics") as response:
        lines = (await response.text()).splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(name + " "))


async def test_each_file_is_taken_by_itself_when_it_changes(tmp_path: Path) -> None:
    """Zones, identities and cluster tokens; and no file waits for another that is broken."""
    files = Mounted(tmp_path / "mount")
    files.put(zones=ONE, identities=identity("first"), tokens="old\n")
    flags = ("--zones", files.path("zones"), "--identities", files.path("identities"))
    with api_process(tmp_path, *flags, "--cluster-token-file", files.path("tokens"), *SOON) as api:
        assert await status(api, "one", "first") == 200
        files.put(zones=TWO, identities="identities: [broken", tokens="new\n")
        await eventually(lambda: _is(status(api, "two", "first"), 200))
        await eventually(lambda: _is(metric(api, "berth_reload_refused"), 1.0))
        assert await cluster_route(api, "old") == 401
        assert await cluster_route(api, "new") == 200
        files.put(zones=TWO, identities=identity("second"), tokens="new\n")
        await eventually(lambda: _is(status(api, "two", "first"), 401))
        assert await status(api, "two", "second") == 200
        await eventually(lambda: _is(metric(api, "berth_reload_refused"), 0.0))
    told = api.errors.read_text()
    assert told.count("reload refused") == 1, "once per content, however often it is looked at"
    assert "identities.yaml" not in told or "line 1" in told


async def cluster_route(api: ApiProcess, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.delete(api.url + "/v2/cluster", json={"cluster_id": "nobody"}, headers=headers) as response,
    ):
        return 200 if response.status == 404 else response.status


async def _is(asked: Awaitable[float], wanted: float) -> bool:
    return await asked == wanted


async def test_a_file_that_is_still_being_written_is_not_taken(tmp_path: Path) -> None:
    """A zones file that is whole YAML at every line never loses a zone while it is rewritten in place."""
    zones = tmp_path / "zones.yaml"
    lines = ["zones:\n", *(f"- {{name: z{n}, ipv4: [198.51.{n}.0/24]}}\n" for n in range(40))]
    zones.write_text("".join(lines))
    with api_process(tmp_path, "--zones", str(zones), *SOON) as api:
        seen = set()
        with zones.open("w") as file:
            for line in [*lines, "# the end\n"]:
                file.write(line)
                file.flush()
                seen.add(await status(api, "z39"))
        assert wait_until(lambda: "reloaded" in api.errors.read_text(), 60)
        assert seen == {200}
        assert await status(api, "z39") == 200


async def test_nothing_is_looked_at_when_that_is_switched_off(tmp_path: Path) -> None:
    """--reload-seconds 0: the signal alone counts."""
    files = Mounted(tmp_path / "mount")
    files.put(zones=ONE)
    with api_process(tmp_path, "--zones", files.path("zones"), "--reload-seconds", "0") as api:
        files.put(zones=TWO)
        assert await status(api, "two") == 400
        api.process.send_signal(1)
        await eventually(lambda: _is(status(api, "two"), 200))


@pytest.fixture
def neighbours(tmp_path: Path) -> Iterator[dict[str, Neighbour]]:
    with (
        neighbour("sse", tmp_path / "ror") as ror,
        neighbour("hec", tmp_path / "splunk") as splunk,
        neighbour("netbox", tmp_path / "netbox") as netbox,
    ):
        yield {"ror": ror, "splunk": splunk, "netbox": netbox}


async def test_a_token_for_a_neighbour_counts_as_soon_as_it_changes(
    tmp_path: Path, neighbours: dict[str, Neighbour]
) -> None:
    """Of all three; and while its file is away, empty or no text, the last one is used and that is told."""
    files = Mounted(tmp_path / "mount")
    files.put(ror="ror-1\n", splunk="splunk-1\n", netbox="netbox-1\n")
    flags = [part for name in neighbours for part in (f"--{name}-url", neighbours[name].url)]
    flags += [part for name in neighbours for part in (f"--{name}-token-file", files.path(name))]
    with api_process(tmp_path, *flags, "--splunk-index", "i", *SOON) as api:
        for number in (1, 2):
            files.put(ror=f"ror-{number}", splunk=f"splunk-{number}", netbox=f"netbox-{number}")
            for name, wanted in (
                ("ror", f"ror-{number}"),
                ("splunk", f"Splunk splunk-{number}"),
                ("netbox", f"Token netbox-{number}"),
            ):
                await eventually(partial(_used, api, neighbours[name], wanted))
        files.drop()
        await eventually(lambda: _is(metric(api, "berth_reload_refused"), 3.0))
        assert await _used(api, neighbours["ror"], "ror-2")
        files.put(ror="", splunk="splunk-3", netbox="netbox-3")
        await eventually(lambda: _is(metric(api, "berth_reload_refused"), 1.0))
    told = api.errors.read_text()
    for name in ("ROR", "Splunk", "NetBox"):
        assert f"token for {name}" in told
    assert "ror-2" not in told
    assert "the file is empty" in told


async def _used(api: ApiProcess, one: Neighbour, token: str) -> bool:
    """Make it call, and see with what."""
    before = len(one.seen())
    (one.folder / "cut").write_text("now")
    await status(api, service=uuid.uuid4().hex)
    fresh = await eventually(lambda: _more(one, before))
    return fresh[-1].get("key", fresh[-1].get("token")) == token


async def _more(one: Neighbour, before: int) -> list[dict[str, object]]:
    return one.seen()[before:]
