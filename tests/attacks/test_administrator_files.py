"""What an administrator takes away, or writes wrong, in a file: it counts, or is refused in a sentence."""

from __future__ import annotations

import hashlib
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.authorities import certificate, written
from tests.support.processes import wait_until
from tests.support.started import ApiProcess, api_process

from berth.central.identity import load_identities
from berth.central.zones import load_zones
from berth.errors import UserError

DIGEST = hashlib.sha256(b"a token").hexdigest()
POST = b"POST /v2/inventory HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
KNOWN = 400  # what a known client is told about an empty report; a stranger gets 401


# A client CA that was taken away


@dataclass(frozen=True, slots=True)
class WebhookServer:
    """An API that knows one client by its certificate, of a CA that will be taken away."""

    api: ApiProcess
    ca: Path  # of the server
    trusted: Path  # the client CAs
    mine: tuple[Path, Path]
    other: bytes

    @property
    def port(self) -> int:
        return int(self.api.url.rpartition(":")[2])

    def context(self, version: ssl.TLSVersion) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        context.maximum_version = version
        context.load_cert_chain(*self.mine)
        return context

    def connect(
        self, name: str = "127.0.0.1", version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> ssl.SSLSocket:
        """By an address no server name is sent, by `localhost` one is."""
        plain = socket.create_connection(("127.0.0.1", self.port), 30)
        return self.context(version).wrap_socket(plain, server_hostname=name)

    def take_away(self) -> None:
        """Another CA instead, and wait until that is told."""
        before = self.api.errors.read_text().count("reloaded")
        part = self.trusted.with_suffix(".part")
        part.write_bytes(self.other)
        part.replace(self.trusted)
        assert wait_until(lambda: self.api.errors.read_text().count("reloaded") > before, 60)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[WebhookServer]:
    server, gone, stays = (certificate(name, None) for name in ("server-ca", "gone", "stays"))
    ca, _ = written(tmp_path, "server-ca", server)
    trusted, _ = written(tmp_path, "clients", gone)
    other, _ = written(tmp_path, "other", stays)
    cert, key = written(tmp_path, "server", certificate("localhost", server))
    known = tmp_path / "identities.yaml"
    known.write_text("identities: [{name: a, cluster_ids: [c], certificate: prod-1.example}]")
    flags = ("--tls-cert", cert, "--tls-key", key, "--client-ca", trusted, "--identities", known)
    mine = written(tmp_path, "client", certificate("prod-1.example", gone))
    with api_process(tmp_path, *map(str, flags), "--reload-seconds", "0.1") as api:
        yield WebhookServer(api, ca, trusted, mine, other.read_bytes())


def asked(connection: ssl.SSLSocket) -> int:
    """The status of an answer; 0 when the connection was ended instead."""
    try:
        connection.sendall(POST)
        answer = b""
        while b"}" not in answer and (part := connection.recv(4096)):
            answer += part
    except (ConnectionError, ssl.SSLError):
        return 0
    return int(answer.split()[1]) if answer else 0


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_of_a_client_ca_that_was_taken_away(
    door: WebhookServer, name: str, version: ssl.TLSVersion
) -> None:
    """With and without a server name: the handshake fails, where before it was an identity."""
    with door.connect(name, version) as connection:
        assert asked(connection) == KNOWN
    door.take_away()
    try:
        with door.connect(name, version) as connection:
            assert asked(connection) == 0
    except ssl.SSLError:
        return  # TLS 1.2 hears of it in the handshake


def test_a_connection_that_is_kept_open_over_the_change(door: WebhookServer) -> None:
    """It ends, used before or silent so far."""
    with door.connect() as used, door.connect() as silent:
        assert asked(used) == KNOWN
        door.take_away()
        assert (asked(used), asked(silent)) == (0, 0)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_of_before_the_change_is_resumed(door: WebhookServer, version: ssl.TLSVersion) -> None:
    """A ticket holds who its client was: one of the old CA must open nothing."""
    context = door.context(version)

    def resume(session: ssl.SSLSession | None) -> tuple[int, bool, ssl.SSLSession | None]:
        plain = socket.create_connection(("127.0.0.1", door.port), 30)
        with context.wrap_socket(plain, server_hostname="localhost", session=session) as one:
            return asked(one), bool(one.session_reused), one.session

    status, _, session = resume(None)
    assert status == KNOWN
    assert resume(session)[:2] == (KNOWN, True), "tickets do work, as long as the CA does"
    door.take_away()
    try:
        assert resume(session)[:2] == (0, False)
    except ssl.SSLError:
        return


def test_a_handshake_that_was_begun_before_the_change(door: WebhookServer) -> None:
    """Held back by the client until the CA is gone, it leads to nothing."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = door.context(ssl.TLSVersion.TLSv1_2)
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", door.port), 30) as plain:
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        plain.sendall(outgoing.read())
        incoming.write(plain.recv(65536))  # the server has answered with the old CA's context
        door.take_away()
        assert finished(tls, plain, incoming, outgoing) == b""


def finished(
    tls: ssl.SSLObject, plain: socket.socket, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
) -> bytes:
    """What the server answers to a request after the rest of the handshake."""
    for _ in range(10):
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            plain.sendall(outgoing.read())
            if not (part := plain.recv(65536)):
                return b""
            incoming.write(part)
    tls.write(POST)
    try:
        plain.sendall(outgoing.read())
        incoming.write(plain.recv(65536))
        return tls.read(4096)
    except (ConnectionError, ssl.SSLError):
        return b""


def test_a_server_certificate_alone_ends_no_connection(door: WebhookServer, tmp_path: Path) -> None:
    """The other side of it: clients that are still good are left alone when only the server's pair is new."""
    with door.connect() as kept:
        assert asked(kept) == KNOWN
        cert, key = written(tmp_path, "new", certificate("localhost", None))
        key.replace(tmp_path / "server.key")
        cert.replace(tmp_path / "server.crt")
        pem = (tmp_path / "server.crt").read_text().strip()
        where = ("127.0.0.1", door.port)
        assert wait_until(lambda: ssl.get_server_certificate(where).strip() == pem, 60)
        assert asked(kept) == KNOWN


# identities.yaml and zones.yaml


def caller(lines: str, name: str = "a") -> str:
    return f"- name: {name}\n  token_sha256: {DIGEST}\n  {lines}\n"


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefghijklm", "bcdefghijklmn", strict=True)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{new}: &{new} {{<<: [{', '.join([f'*{old}'] * 9)}]}}\n"
    for old, new in zip("abcdefghijklm", "bcdefghijklmn", strict=True)
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (caller("cluster_ids: [c]\n  zones:\n  # - inet"), r"entry 1 \('a'\): zones must be a list with at"),
        (caller("cluster_ids: [c]\n  zones: []"), "or be left out for all zones, not an empty list"),
        (caller("cluster_ids: [c]\n  zones: inet"), "zones must be a list with at least one name"),
        (caller("cluster_ids: prod-1"), r"entry 1 \('a'\): cluster_ids must be a list .* not 'prod-1'"),
        (caller("cluster_ids:"), "cluster_ids must be a list with at least one name, not nothing"),
        (caller("cluster_ids: [c, [d]]"), "cluster_ids must be a list of names; a list is none"),
        (caller("cluster_ids: [c]") + caller("cluster_ids: [d]", "b"), r"\('b'\): its token is that of 'a'"),
        (caller("cluster_ids: [c]\n  cluster_ids: [d]"), "line 5, column 3: the same key is there twice"),
    ],
)
def test_an_identity_that_says_more_than_was_meant(tmp_path: Path, text: str, sentence: str) -> None:
    """Everything commented out is not everything allowed, one token is one identity, and none is printed."""
    file = tmp_path / "identities.yaml"
    file.write_text("identities:\n" + text)
    with pytest.raises(UserError, match=sentence) as raised:
        load_identities(file)
    assert str(file) in str(raised.value)
    assert DIGEST not in str(raised.value)


HOSTILE = {
    "aliases": LAUGHS + "KIND: [*n]",
    "aliases as a name": LAUGHS + "KIND: [{name: *n, cluster_ids: *n, ipv4: *n, certificate: c}]",
    "merges": MERGES + "KIND: [*n]",
    "depth": "KIND: " + "[" * 5000,
    "digits": "KIND: [{name: " + "9" * 5000 + "}]",
    "no date": "KIND: [{name: 2026-13-41}]",
    "no number": "KIND: [{name: !!int ''}]",
    "no truth": "KIND: [{name: !!bool maybe}]",
    "a tag": "KIND: [!token-canary x]",
    "an alias": "KIND: [*token-canary]",
    "a bare word": "KIND: [token-canary]",
    "a broken line": "KIND:\n- name: a\n  token: token-canary\n token-canary",
    "twice": "KIND: []\nKIND: []",
    "a tab": "KIND:\n\t- name: token-canary",
    "zero": "KIND: \0token-canary",
    "two documents": "KIND: []\n---\ntoken-canary",
    "a list as a key": "KIND: [{? [a] : b}]",
    "a long key": "KIND: [{name: a, " + "k" * 5000 + ": b}]",
    "long text": "KIND: [{name: " + "n" * 5000 + ", ipv4: [" + "p" * 5000 + "]}]",
}


@pytest.mark.parametrize("kind", ["zones", "identities"])
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_file_that_is_hostile_to_its_reader(tmp_path: Path, kind: str, text: str) -> None:
    """One sentence with the file's name, soon, and without what stands in the file."""
    file = tmp_path / f"{kind}.yaml"
    file.write_text(text.replace("KIND", kind))
    began = time.process_time()
    load = load_zones if kind == "zones" else load_identities
    with pytest.raises(UserError) as raised:
        load(file)
    assert time.process_time() - began < 5
    said = str(raised.value)
    assert str(file) in said
    assert "canary" not in said
    assert len(said) - len(str(file)) < 300
    assert "\n" not in said


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"zones:\n\xc3", b"# " + b"x" * 1_100_000])
@pytest.mark.parametrize("kind", ["zones", "identities"])
def test_a_file_that_is_no_text_or_too_large(tmp_path: Path, kind: str, raw: bytes) -> None:
    """Said in one sentence as well."""
    file = tmp_path / f"{kind}.yaml"
    file.write_bytes(raw)
    load = load_zones if kind == "zones" else load_identities
    with pytest.raises(UserError, match=r"is not UTF-8|larger than"):
        load(file)
