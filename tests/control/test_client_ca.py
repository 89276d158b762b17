"""A listener that wants its clients' certificates: whom it serves, and what a changed file changes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tests.kube.certificates import Authority
from tests.support.eventually import eventually

from berth.control.certs import Certificates, ClientAuthority, Directory
from berth.control.listen import Listen, Server, serve
from berth.control.x509 import Policy, new_keyring
from berth.errors import UserError

FLAG = "--webhook-client-ca"
PATIENCE = aiohttp.ClientTimeout(total=20)


@dataclass
class Guarded:
    """A server on loopback that serves only clients of the authorities in `ca`."""

    certificates: Certificates
    server: Server
    directory: Path
    serving: Path
    begun: asyncio.Event
    go_on: asyncio.Event

    @property
    def ca(self) -> Path:
        return self.directory / "clients.crt"

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server.port}/"

    def tls(self, authority: Authority | None) -> ssl.SSLContext:
        """Of a client who trusts the server, with a certificate of this authority or none."""
        context = ssl.create_default_context(cadata=self.certificates.bundle.decode())
        if authority is not None:
            context.load_cert_chain(*authority.issue("client").write(self.directory, "client"))
        return context

    async def serves(self, authority: Authority | None) -> bool:
        try:
            async with (
                aiohttp.ClientSession(timeout=PATIENCE) as session,
                session.get(self.url, ssl=self.tls(authority)) as answer,
            ):
                return answer.status == 200
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def guarded(directory: Path, *authorities: Authority) -> AsyncIterator[Guarded]:
    serving = directory / "serving"
    serving.mkdir()
    ring = new_keyring(("127.0.0.1",), datetime.now(UTC), Policy())
    for name, content in (("tls.crt", ring.serving.certificate), ("tls.key", ring.serving.key)):
        (serving / name).write_bytes(content)
    (serving / "ca.crt").write_bytes(ring.bundle)
    (directory / "clients.crt").write_bytes(b"".join(authority.pem for authority in authorities))
    servers: list[Server] = []

    def hang_up() -> None:
        for server in servers:
            server.hang_up()

    certificates = Certificates(
        Directory(serving),
        clients=ClientAuthority(directory / "clients.crt", FLAG),
        interval_seconds=0.02,
        dismiss=hang_up,
    )
    await certificates.refresh()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        begun.set()
        await go_on.wait()
        return web.Response(text="at last")

    app = web.Application()
    app.router.add_get("/", hello)
    app.router.add_get("/slow", slow)
    server = await serve(app, Listen("127.0.0.1", 0), "--port", tls=certificates.context)
    servers.append(server)
    asking = asyncio.create_task(certificates.run())
    try:
        yield Guarded(certificates, server, directory, serving, begun, go_on)
    finally:
        asking.cancel()
        await server.stop()


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="hello")


@contextmanager
def refused() -> Iterator[None]:
    """In TLS 1.3 a server's no comes with the first read, which may show as a reset."""
    with pytest.raises(aiohttp.ClientError):
        yield


async def test_only_a_client_of_the_authority_is_served(tmp_path: Path) -> None:
    ours = Authority("ours")
    async with guarded(tmp_path, ours) as door:
        assert await door.serves(ours)
        assert not await door.serves(None)
        assert not await door.serves(Authority("ours"))  # the same name, another key


async def test_each_of_several_authorities_is_enough(tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    async with guarded(tmp_path, old, new) as door:
        assert await door.serves(old)
        assert await door.serves(new)


async def test_an_authority_that_is_taken_away_is_gone(tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    async with guarded(tmp_path, old) as door:
        assert await door.serves(old)
        door.ca.write_bytes(new.pem)
        await eventually(lambda: door.serves(new))
        assert not await door.serves(old)


async def test_a_connection_from_before_is_ended_when_its_authority_goes(tmp_path: Path) -> None:
    """An open connection would otherwise outlive its right for as long as it is used."""
    old, new = Authority("old"), Authority("new")
    async with guarded(tmp_path, old) as door:
        connector = aiohttp.TCPConnector(ssl=door.tls(old), limit=1)
        async with aiohttp.ClientSession(connector=connector, timeout=PATIENCE) as session:
            async with session.get(door.url) as answer:
                assert answer.status == 200
            door.ca.write_bytes(new.pem)
            await eventually(lambda: door.serves(new))
            with refused():
                async with session.get(door.url):
                    pass


async def test_a_request_under_way_is_answered_before_its_connection_ends(tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    async with guarded(tmp_path, old) as door:
        connector = aiohttp.TCPConnector(ssl=door.tls(old), limit=1)
        async with aiohttp.ClientSession(connector=connector, timeout=PATIENCE) as session:
            asked = asyncio.create_task(session.get(door.url + "slow"))
            await asyncio.wait_for(door.begun.wait(), 10)
            door.ca.write_bytes(new.pem)
            await eventually(lambda: door.serves(new))
            door.go_on.set()
            answer = await asyncio.wait_for(asked, 10)
            assert await answer.text() == "at last"
            with refused():
                async with session.get(door.url):
                    pass


async def test_no_session_of_before_is_resumed(tmp_path: Path) -> None:
    """Who resumes shows no certificate, so nobody is given what to resume with."""
    ours = Authority("ours")
    async with guarded(tmp_path, ours) as door:
        session = await asyncio.to_thread(_session, door.server.port, door.tls(ours))
        assert session is None or not session.has_ticket
        older = door.tls(ours)
        older.maximum_version = ssl.TLSVersion.TLSv1_2  # it resumes by an id that the server keeps
        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(_session, door.server.port, older)


def _session(port: int, tls: ssl.SSLContext) -> ssl.SSLSession | None:
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        tls.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        secure.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while secure.recv(4096):
            pass
        return secure.session


async def test_a_file_that_becomes_bad_changes_nothing_and_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = Authority("ours")
    async with guarded(tmp_path, ours) as door:
        door.ca.write_text("half a fi")
        await eventually(lambda: _said(capsys, "holds no certificate in PEM"))
        assert await door.serves(ours)
        assert not await door.serves(None)
        door.ca.unlink()
        await eventually(lambda: _said(capsys, "No such file"))
        assert await door.serves(ours)


async def test_an_authority_goes_though_our_own_certificate_cannot_be_read(tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    async with guarded(tmp_path, old) as door:
        (door.serving / "tls.key").unlink()
        door.ca.write_bytes(new.pem)
        await eventually(lambda: door.serves(new))
        assert not await door.serves(old)


async def _said(capsys: pytest.CaptureFixture[str], text: str) -> bool:
    captured = capsys.readouterr()
    return text in captured.err + captured.out


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot read .*clients.crt: No such file"),
        (b"", "holds no certificate in PEM"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "holds no certificate in PEM"),
        (Authority().issue("client").certificate, "holds no certificate authority; name the CA that signed"),
    ],
)
async def test_a_file_that_is_no_authority_is_one_sentence(
    tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    path = tmp_path / "clients.crt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=f"{FLAG}: .*{sentence}"):
        await ClientAuthority(path, FLAG).load()


async def test_a_key_in_the_file_goes_no_further(tmp_path: Path) -> None:
    authority, path = Authority(), tmp_path / "clients.crt"
    path.write_bytes(authority.pem + authority.issue("client").key)
    assert await ClientAuthority(path, FLAG).load() == authority.pem
