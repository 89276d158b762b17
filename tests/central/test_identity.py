"""Identity under the open contract: a bearer token or a client certificate, bound to clusters and zones."""

from __future__ import annotations

import hashlib
import signal
import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
import pytest
from tests.support.authorities import certificate, written
from tests.support.central import CLUSTER, Options, Reply, World, request_body
from tests.support.processes import wait_until
from tests.support.started import api_process

from berth.central.identity import load_identities
from berth.errors import UserError

Start = Callable[..., AbstractAsyncContextManager[World]]
TOKEN = "token-of-prod-1"


def identities(tmp_path: Path, line: str) -> Path:
    file = tmp_path / "identities.yaml"
    file.write_text(
        f"identities:\n  - name: prod-1\n    cluster_ids: [{CLUSTER}]\n    zones: [inet]\n    {line}\n"
    )
    return file


async def test_a_token_speaks_for_its_cluster_and_zone_only(start: Start, tmp_path: Path) -> None:
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    known = load_identities(identities(tmp_path, f"token_sha256: {digest}"))
    async with start(Options(identities=known)) as world:

        async def post(token: str | None, **changes: str) -> int:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            reply = await world.send("POST", "/v2/address", request_body(**changes), headers=headers)
            assert "message" in reply.body
            return reply.status

        assert await post(None) == 401
        assert await post("wrong") == 401
        assert await post(TOKEN) == 200
        assert await post(TOKEN, cluster="another") == 403
        assert await post(TOKEN, zone="hnet-private") == 403


async def test_a_stranger_is_told_nothing_and_nothing_of_it_is_read(start: Start, tmp_path: Path) -> None:
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    known = load_identities(identities(tmp_path, f"token_sha256: {digest}"))
    async with start(Options(identities=known)) as world:
        for method, path in (
            ("POST", "/v2/address"),
            ("DELETE", "/v2/service"),
            ("POST", "/v2/batch"),
            ("POST", "/v2/inventory"),
        ):
            for body in (b"{broken", b" " * 100_000, request_body(zone="mars", address="foo")):
                reply = await world.send(method, path, body)
                assert reply.body == {"message": "Authorization required", "reason": "Unauthorized"}


async def test_a_token_speaks_for_its_cluster_in_every_call(start: Start, tmp_path: Path) -> None:
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    known = load_identities(identities(tmp_path, f"token_sha256: {digest}"))
    async with start(Options(identities=known)) as world:

        async def ask(method: str, path: str, body: dict[str, object]) -> Reply:
            return await world.send(method, path, body, headers={"Authorization": f"Bearer {TOKEN}"})

        mine, others = request_body(address="83.118.168.10"), request_body(cluster="another")
        calls = [{"method": "POST", "body": body} for body in (mine, others)]
        answers = (await ask("POST", "/v2/batch", {"calls": calls})).body["answers"]
        assert [one["status"] for one in answers] == [200, 403]
        report = {"epoch": "e", "sequence": 1, "addresses": []}
        assert (await ask("POST", "/v2/inventory", {"cluster_id": CLUSTER, **report})).status == 200
        assert (await ask("POST", "/v2/inventory", {"cluster_id": "another", **report})).status == 403
        assert (await ask("DELETE", "/v2/service", others | {"address": "83.118.168.10"})).status == 403
        assert (await ask("DELETE", "/v2/service", mine)).status == 200


async def test_a_client_certificate_is_an_identity_over_tls(tmp_path: Path) -> None:
    ca = certificate("ca", None)
    ca_file, _ = written(tmp_path, "ca", ca)
    server_cert, server_key = written(tmp_path, "server", certificate("localhost", ca))
    client_cert, client_key = written(tmp_path, "client", certificate("prod-1.example", ca))
    known = identities(tmp_path, "certificate: prod-1.example")
    flags = [
        "--tls-cert",
        server_cert,
        "--tls-key",
        server_key,
        "--client-ca",
        ca_file,
        "--identities",
        known,
    ]
    with api_process(tmp_path, *map(str, flags)) as api:
        assert api.url.startswith("https://")
        url = api.url.replace("127.0.0.1", "localhost") + "/v2/address"
        plain = ssl.create_default_context(cafile=ca_file)
        shown = ssl.create_default_context(cafile=ca_file)
        shown.load_cert_chain(client_cert, client_key)
        async with aiohttp.ClientSession() as session:
            async with session.post(url, json=request_body(), ssl=plain) as response:
                assert response.status == 401
            async with session.post(url, json=request_body(), ssl=shown) as response:
                assert response.status == 200


async def test_hangup_takes_a_renewed_certificate_and_no_broken_one(tmp_path: Path) -> None:
    ca = certificate("ca", None)
    cert, key = written(tmp_path, "server", certificate("localhost", ca))
    with api_process(tmp_path, "--tls-cert", str(cert), "--tls-key", str(key)) as api:
        port = int(api.url.rpartition(":")[2])

        def served() -> str:
            return ssl.get_server_certificate(("127.0.0.1", port)).strip()

        assert served() == cert.read_text().strip()
        written(tmp_path, "server", certificate("localhost", ca))
        api.process.send_signal(signal.SIGHUP)
        assert wait_until(lambda: served() == cert.read_text().strip(), 60)
        good = cert.read_text().strip()
        cert.write_text("no certificate")
        api.process.send_signal(signal.SIGHUP)
        assert wait_until(lambda: "TLS files cannot be used" in api.errors.read_text(), 60)
        assert served() == good


@pytest.mark.parametrize(
    "line", ["token_sha256: short", "unknown: 1", "{}", "certificate: a\n    token_sha256: b"]
)
def test_a_bad_identities_file_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(UserError):
        load_identities(identities(tmp_path, line))


@pytest.mark.parametrize("text", ["", "[]", "identities: x", "identities: [x]", "identities: [{1: a, b: c}]"])
def test_an_identities_file_of_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.yaml").write_text(text)
    with pytest.raises(UserError, match=r"odd\.yaml cannot be used"):
        load_identities(tmp_path / "odd.yaml")
