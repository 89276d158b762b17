"""certs: a live listener changes its certificate without dropping anyone, whatever the source."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.support.virtual import run

from berth.control.certs import Certificates, Directory, Material
from berth.control.x509 import Keyring, Policy, new_keyring
from berth.errors import Unreachable, UserError

NAMES = ("localhost", "127.0.0.1")


def fresh_ring() -> Keyring:
    return new_keyring(NAMES, datetime.now(UTC), Policy())


def material(ring: Keyring) -> Material:
    return Material(ring.serving.certificate, ring.serving.key, ring.bundle)


class Scripted:
    """A source that gives what the test puts in."""

    def __init__(self, first: Material) -> None:
        self.next: Material | Exception = first
        self.asked = 0

    async def load(self) -> Material:
        self.asked += 1
        if isinstance(self.next, Exception):
            raise self.next
        return self.next


@dataclass
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def peer(self) -> x509.Certificate:
        found = self.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(found)

    async def echo(self, text: bytes) -> bytes:
        self.writer.write(text + b"\n")
        return (await self.reader.readline()).strip()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(line)
    writer.close()


@asynccontextmanager
async def listening(certificates: Certificates) -> AsyncIterator[int]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=certificates.context)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def connected(port: int, bundle: bytes, name: str = "127.0.0.1") -> AsyncIterator[Connection]:
    """Names are sent to the server (SNI), addresses are not, as every TLS client does."""
    tls = ssl.create_default_context(cadata=bundle.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("name", NAMES)
async def test_a_client_that_trusts_the_bundle_is_served_with_and_without_a_name(name: str) -> None:
    ring = fresh_ring()
    certificates = Certificates(Scripted(material(ring)))
    assert await certificates.refresh()
    async with listening(certificates) as port, connected(port, certificates.bundle, name) as connection:
        assert await connection.echo(b"hello") == b"hello"
        assert connection.peer == ring.serving.x509


async def test_a_client_that_trusts_someone_else_is_not_served() -> None:
    certificates = Certificates(Scripted(material(fresh_ring())))
    await certificates.refresh()
    async with listening(certificates) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            async with connected(port, fresh_ring().bundle):
                pass


async def test_a_change_reaches_new_connections_and_leaves_open_ones_alone() -> None:
    old, new = fresh_ring(), fresh_ring()
    source = Scripted(material(old))
    certificates = Certificates(source)
    await certificates.refresh()
    async with listening(certificates) as port, connected(port, old.bundle) as before:
        source.next = material(new)
        assert await certificates.refresh()
        async with connected(port, new.bundle) as after:
            assert after.peer == new.serving.x509
        assert await before.echo(b"still here") == b"still here"


async def test_a_successor_with_another_type_of_key_leaves_nothing_of_the_old_one() -> None:
    source = Scripted(material(fresh_ring()))
    certificates = Certificates(source)
    await certificates.refresh()
    source.next = rsa_material()
    await certificates.refresh()
    async with listening(certificates) as port, connected(port, source.next.bundle) as connection:
        assert isinstance(connection.peer.public_key(), rsa.RSAPublicKey)


async def test_nothing_below_tls_1_2_is_spoken() -> None:
    certificates = Certificates(Scripted(material(fresh_ring())))
    await certificates.refresh()
    assert certificates.context.minimum_version == ssl.TLSVersion.TLSv1_2


async def test_the_same_again_is_no_change() -> None:
    told: list[float] = []
    ring = fresh_ring()
    certificates = Certificates(Scripted(material(ring)), tell=told.append)
    assert await certificates.refresh()
    assert not await certificates.refresh()
    assert told == [ring.serving.ends_at.timestamp()]


def test_a_failing_source_changes_nothing_and_is_asked_again() -> None:
    async def main() -> None:
        old, new = fresh_ring(), fresh_ring()
        source = Scripted(material(old))
        certificates = Certificates(source, interval_seconds=60.0)
        await certificates.refresh()
        running = asyncio.create_task(certificates.run())
        source.next = Unreachable("connection refused")
        await asyncio.sleep(200)
        assert source.asked == 4
        assert certificates.bundle == old.bundle
        source.next = material(new)
        await asyncio.wait_for(certificates.changed(), 61)
        assert certificates.bundle == new.bundle
        running.cancel()

    run(main())


def test_whoever_waits_for_a_change_is_woken_once_per_change() -> None:
    async def main() -> None:
        source = Scripted(material(fresh_ring()))
        certificates = Certificates(source)
        await certificates.refresh()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(certificates.changed(), 1)
        waiting = asyncio.create_task(certificates.changed())
        await asyncio.sleep(0)
        source.next = material(fresh_ring())
        await certificates.refresh()
        await asyncio.wait_for(waiting, 1)

    run(main())


# Files given by someone else.


def write(directory: Path, ring: Keyring) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "tls.crt").write_bytes(ring.serving.certificate)
    (directory / "tls.key").write_bytes(ring.serving.key)
    (directory / "ca.crt").write_bytes(ring.bundle)


async def test_a_mounted_volume_is_followed_when_its_link_is_swapped(tmp_path: Path) -> None:
    """As the kubelet does it: files are links through `..data`, which is swapped in one step."""
    old, new = fresh_ring(), fresh_ring()
    write(tmp_path / "v1", old)
    write(tmp_path / "v2", new)
    (tmp_path / "..data").symlink_to("v1")
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    certificates = Certificates(Directory(tmp_path))
    await certificates.refresh()
    assert certificates.bundle == old.bundle
    (tmp_path / "..next").symlink_to("v2")
    os.replace(tmp_path / "..next", tmp_path / "..data")
    assert await certificates.refresh()
    async with listening(certificates) as port, connected(port, new.bundle) as connection:
        assert connection.peer == new.serving.x509


async def test_files_caught_between_two_writes_are_not_served(tmp_path: Path) -> None:
    old, new = fresh_ring(), fresh_ring()
    write(tmp_path, old)
    certificates = Certificates(Directory(tmp_path))
    await certificates.refresh()
    (tmp_path / "tls.crt").write_bytes(new.serving.certificate)
    with pytest.raises(UserError, match="belong together"):
        await certificates.refresh()
    async with listening(certificates) as port, connected(port, old.bundle) as connection:
        assert connection.peer == old.serving.x509


async def test_without_ca_crt_there_is_no_bundle(tmp_path: Path) -> None:
    write(tmp_path, fresh_ring())
    (tmp_path / "ca.crt").unlink()
    assert (await Directory(tmp_path).load()).bundle == b""


async def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tls\.crt: No such file"):
        await Directory(tmp_path).load()


async def test_an_encrypted_key_is_refused_without_asking_the_terminal(tmp_path: Path) -> None:
    ring = fresh_ring()
    write(tmp_path, ring)
    locked = serialization.load_pem_private_key(ring.serving.key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"open"),
    )
    (tmp_path / "tls.key").write_bytes(locked)
    with pytest.raises(UserError, match="unencrypted PEM"):
        await Directory(tmp_path).load()


def rsa_material() -> Material:
    """A self-signed RSA certificate for the address, its own authority."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rsa")])
    now = datetime.now(UTC)
    pem = serialization.Encoding.PEM
    address = new_keyring(NAMES, now, Policy()).serving.x509.extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(address.value, critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(pem)
    )
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Material(certificate, private, certificate)
