"""health: probes tell what is open, metrics are there to be read, a busy port is one sentence."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from berth.control.certs import Certificates, Directory
from berth.control.health import Addresses, Checks, Probes, serve_probes
from berth.control.listen import Listen, Server, parse_listen
from berth.control.x509 import Policy, new_keyring
from berth.errors import UserError
from berth.metrics import Metrics

ANY = "127.0.0.1:0"


@asynccontextmanager
async def probes(addresses: Addresses, checks: Checks | None = None) -> AsyncIterator[Probes]:
    metrics = Metrics()
    metrics.leading(True)
    running = await serve_probes(addresses, checks or Checks(), metrics.registry)
    try:
        yield running
    finally:
        await running.stop()


async def get(server: Server | None, path: str) -> tuple[int, str]:
    assert server is not None
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{server.port}{path}") as answer,
    ):
        return answer.status, await answer.text()


async def test_without_checks_it_is_alive_and_ready() -> None:
    async with probes(Addresses(health=ANY)) as running:
        assert await get(running.health, "/healthz") == (200, "ok\n")
        assert await get(running.health, "/readyz") == (200, "ok\n")
        assert running.metrics is None


async def test_readiness_names_each_open_check_with_its_reason_until_it_passes() -> None:
    checks, reasons = Checks(), {"caches": "2 of 5 filled", "webhook": ""}
    for name in reasons:
        checks.ready(name, partial(reasons.__getitem__, name))
    async with probes(Addresses(health=ANY), checks) as running:
        assert await get(running.health, "/readyz") == (503, "caches: 2 of 5 filled\n")
        assert (await get(running.health, "/healthz"))[0] == 200
        reasons["caches"] = ""
        assert (await get(running.health, "/readyz"))[0] == 200


async def test_what_is_not_alive_is_not_ready_either() -> None:
    checks = Checks()
    checks.alive("loop", lambda: "stalled for 40 s")
    async with probes(Addresses(health=ANY), checks) as running:
        assert await get(running.health, "/healthz") == (503, "loop: stalled for 40 s\n")
        assert (await get(running.health, "/readyz"))[0] == 503


async def test_a_check_that_fails_is_a_reason() -> None:
    checks = Checks()
    checks.ready("broken", lambda: str(1 // 0))
    async with probes(Addresses(health=ANY), checks) as running:
        assert await get(running.health, "/readyz") == (
            503,
            "broken: the check itself failed: ZeroDivisionError\n",
        )


async def test_metrics_have_their_own_address() -> None:
    async with probes(Addresses(ANY, "127.0.0.2:0")) as running:
        assert running.health is not None
        assert running.metrics is not None
        assert (await get(running.health, "/metrics"))[0] == 404
        assert running.metrics.host == "127.0.0.2"


async def test_one_address_serves_both() -> None:
    async with probes(Addresses(ANY, ANY)) as running:
        assert running.health is running.metrics
        assert (await get(running.health, "/healthz"))[0] == 200
        status, text = await get(running.metrics, "/metrics")
        assert status == 200
        assert "berth_leader 1.0" in text


async def test_an_empty_host_listens_on_both_families() -> None:
    async with probes(Addresses(health=":0")) as running:
        assert (await get(running.health, "/healthz"))[0] == 200
        if socket.has_dualstack_ipv6():
            assert running.health is not None
            assert running.health.host == "::"


async def test_a_busy_port_is_one_sentence_and_leaves_nothing_running() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        taken = f"127.0.0.1:{busy.getsockname()[1]}"
        with pytest.raises(UserError, match=rf"{taken} is in use .* --metrics-listen"):
            await serve_probes(Addresses(ANY, taken), Checks(), Metrics().registry)


async def test_metrics_are_served_over_https_and_probes_are_not(tmp_path: Path) -> None:
    ring = new_keyring(("127.0.0.1",), datetime.now(UTC), Policy())
    (tmp_path / "tls.crt").write_bytes(ring.serving.certificate)
    (tmp_path / "tls.key").write_bytes(ring.serving.key)
    certificates = Certificates(Directory(tmp_path))
    await certificates.refresh()
    trust = ssl.create_default_context(cadata=ring.bundle.decode())
    async with probes(Addresses(ANY, "127.0.0.2:0", certificates.context)) as running:
        assert running.metrics is not None
        url = f"https://{running.metrics.host}:{running.metrics.port}/metrics"
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, ssl=trust, server_hostname="127.0.0.1") as answer,
        ):
            assert "berth_leader 1.0" in await answer.text()
        assert await get(running.health, "/healthz") == (200, "ok\n")


async def test_metrics_over_https_want_an_address_of_their_own() -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for shared in ("", ANY):
        with pytest.raises(UserError, match="--metrics-cert-dir needs --metrics-listen"):
            await serve_probes(Addresses(ANY, shared, tls), Checks(), Metrics().registry)


async def test_an_address_that_is_not_ours_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"Cannot listen on 192\.0\.2\.1:0 .* --health-listen"):
        await serve_probes(Addresses("192.0.2.1:0"), Checks(), Metrics().registry)


async def test_a_host_nobody_knows_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"Cannot listen on nowhere\.invalid:0"):
        await serve_probes(Addresses("nowhere.invalid:0"), Checks(), Metrics().registry)


@pytest.mark.parametrize(
    ("text", "listen"),
    [
        ("127.0.0.1:8080", Listen("127.0.0.1", 8080)),
        (":0", Listen("", 0)),
        ("[::1]:443", Listen("::1", 443)),
        ("localhost:1", Listen("localhost", 1)),
    ],
)
def test_listen_addresses_are_read_and_written(text: str, listen: Listen) -> None:
    assert parse_listen(text, "--x") == listen
    assert str(listen) == text


@pytest.mark.parametrize(
    "text", ["", "8080", "host", "host:", "host:http", "::1:80", "a:65536", "a:-1", "a:¹"]
)
def test_what_is_no_listen_address_names_the_flag(text: str) -> None:
    with pytest.raises(UserError, match="--x must be host:port"):
        parse_listen(text, "--x")
