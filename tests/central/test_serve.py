"""`berth api` as people start it: ports, signals, reload, and one clear sentence for bad input."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import aiohttp
import pytest
from tests.support.central import request_body
from tests.support.eventually import eventually
from tests.support.processes import wait_until
from tests.support.started import api_process

ONE = "zones: [{name: one, ipv4: [192.0.2.0/24]}]\n"
TWO = ONE[:-2] + ", {name: two, ipv4: [198.51.100.0/24]}]\n"
SHRUNK = "zones: [{name: one, ipv4: [192.0.2.128/25]}]\n"


async def status(url: str, zone: str, service: str = "s") -> int:
    body = request_body(service, zone=zone)
    async with aiohttp.ClientSession() as session, session.post(url + "/v2/address", json=body) as response:
        return response.status


AS_MAIN_DOES = """
import sys, typer
from berth.cli.api import api
from berth.errors import BerthError
try:
    typer.run(api)
except BerthError as error:
    sys.exit(f"berth: {error}")
"""


def test_it_stops_cleanly_and_soon_on_sigterm(tmp_path: Path) -> None:
    with api_process(tmp_path) as api:
        began = time.monotonic()
        assert api.stop() == 0
        assert time.monotonic() - began < 10
        assert "Traceback" not in api.errors.read_text()


BROKEN = (
    b"Authorization Bearer {canary}\r\n\r\n",
    b'Content-Length: 2\r\n\r\n{{}}"secret": "{canary}" }}\r\n',
    b'Transfer-Encoding: chunked\r\n\r\n{{"secret":"{canary}"}}\r\n0\r\n\r\n',
    b"Authorization: Bearer {canary}\x01\r\n\r\n",
    b"Authorization: Bearer {canary}" + b"a" * 9000 + b"\r\n\r\n",
)


async def test_v205_a_request_that_is_no_http_is_neither_echoed_nor_logged(tmp_path: Path) -> None:
    """V-205, I6"""
    canary = f"canary-{time.time_ns()}"
    with api_process(tmp_path, "--log-level", "debug") as api:
        for broken in BROKEN:
            reader, writer = await asyncio.open_connection(*api.url.removeprefix("http://").split(":"))
            rest = broken.replace(b"{{", b"{").replace(b"}}", b"}").replace(b"{canary}", canary.encode())
            writer.write(b"POST /v2/address HTTP/1.1\r\nHost: x\r\n" + rest)
            answer = b""
            with suppress(TimeoutError):
                async with asyncio.timeout(2):
                    while part := await reader.read(4096):
                        answer += part
            writer.close()
            assert b" 400 " in answer.partition(b"\r\n")[0], answer
            assert b"application/json" in answer
            assert canary.encode() not in answer, "I6: it was echoed"
    assert canary not in api.errors.read_text(), "I6: it was logged"


@asynccontextmanager
async def busy(url: str, zone: str) -> AsyncIterator[list[int]]:
    """Sixteen clients that ask without a pause; the statuses they get."""
    got: list[int] = []
    stop = asyncio.Event()

    async def ask(name: str) -> None:
        while not stop.is_set():
            got.append(await status(url, zone, name))

    async with asyncio.TaskGroup() as tasks:
        for number in range(16):
            tasks.create_task(ask(f"s{number}"))
        try:
            yield got
        finally:
            stop.set()


async def test_hangup_reads_the_files_again_without_dropping_a_request(tmp_path: Path) -> None:
    """Zones that come, go and shrink under their holders, and files with faults of every kind."""
    zones = tmp_path / "zones.yaml"
    zones.write_text(ONE)
    with api_process(tmp_path, "--zones", str(zones)) as api:
        assert await status(api.url, "two") == 400

        async def hangup(text: str) -> str:
            """The line that the reload of this file makes."""
            before = len(lines("reload", api.errors))
            zones.write_text(text)
            api.process.send_signal(signal.SIGHUP)
            return (await eventually(lambda: more(before)))[-1]

        async def more(before: int) -> list[str]:
            return lines("reload", api.errors)[before:]

        async with busy(api.url, "one") as got:
            for _ in range(3):
                assert "reloaded" in await hangup(TWO)
                assert await status(api.url, "two") == 200
                for fault in ("zones: [{name: bad name!}]", "zones: [{name: a, 1: x, b: y}]", "- " * 3000):
                    assert "reload refused" in await hangup(fault)
                assert await status(api.url, "two") == 200
                assert "reloaded" in await hangup(SHRUNK)
        assert set(got) == {200}


def lines(word: str, file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if word in line]


def test_a_server_that_stops_leaves_the_sweep_to_others_at_once(tmp_path: Path) -> None:
    def leased() -> list[tuple[str]]:
        with closing(sqlite3.connect(tmp_path / "berth.db")) as file:
            return file.execute("SELECT name FROM duties").fetchall()

    with api_process(tmp_path, "--sweep-seconds", "0.05") as api:
        assert wait_until(lambda: leased() == [("sweep",)])
        assert api.stop() == 0
        assert leased() == []


def test_a_second_server_on_the_same_sqlite_file_is_refused(tmp_path: Path) -> None:
    with api_process(tmp_path):
        outcome = run("--listen", "127.0.0.1:0", folder=tmp_path)
        assert outcome.returncode != 0
        assert "Another server uses berth.db" in outcome.stderr


def run(*flags: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", AS_MAIN_DOES, *flags]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60, check=False)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--listen", "nowhere"], "--listen must be host:port"),
        (["--listen", "192.0.2.1:1"], "choose another with --listen"),
        (["--database", "mysql://x"], "neither sqlite:///FILE nor postgresql"),
        (["--database", "sqlite:////nowhere/berth.db"], "cannot be opened"),
        (["--database", "postgresql://user:hidden@127.0.0.1:1/x"], "cannot be used"),
        (["--zones", "missing.yaml"], "missing.yaml cannot be read: No such file or directory."),
        (["--zones", "bad.yaml"], "overlap"),
        (["--pepper-file", "open.pepper"], "0600"),
        (["--sweep-seconds", "0"], "above 0"),
        (["--cluster-token-file", "missing"], "missing cannot be read: No such file or directory."),
        (["--tls-cert", "missing"], "TLS files cannot be used"),
        (["--netbox-url", "http://127.0.0.1:1"], "--netbox-token-file"),
        (["--splunk-url", "http://127.0.0.1:1"], "Splunk needs"),
        (["--tls-key", "server.key"], "need --tls-cert"),
    ],
)
def test_bad_input_is_one_sentence_and_no_traceback(tmp_path: Path, flags: list[str], sentence: str) -> None:
    (tmp_path / "bad.yaml").write_text("zones: [{name: a, ipv4: [192.0.2.0/24, 192.0.2.128/25]}]")
    (tmp_path / "open.pepper").write_text("k:" + "00" * 32)
    (tmp_path / "open.pepper").chmod(0o644)
    outcome = run("--listen", "127.0.0.1:0", *flags, folder=tmp_path)
    assert outcome.returncode != 0
    assert sentence in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert "hidden" not in outcome.stderr
