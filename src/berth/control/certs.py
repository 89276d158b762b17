"""A listener's certificate: where it comes from, and how it is changed while the listener lives.

    Directory        given: tls.crt, tls.key and perhaps ca.crt, as cert-manager mounts them
    OwnKeyring       self-made, in memory, for a single process outside a cluster
    SharedKeyring    self-made, in a Secret, so that every replica serves under one authority (keyring.py)

`Certificates` asks its source again every interval. The listener is given one outer TLS context whose SNI
callback points each new connection to the newest inner context: nothing is dropped, and a certificate of
another key type cannot linger beside its successor as it would if one context were loaded twice.

With a `ClientAuthority` the listener serves only who shows a certificate of it. Its file is read again along
with the rest, and whoever is no longer in it is really gone: the context is a fresh one, no session is
resumed, and `dismiss` ends the connections that were let in before.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from berth import log
from berth.errors import KubeError, UserError
from berth.kube.http.tls import private_file


@dataclass(frozen=True, slots=True)
class Material:
    """What a listener needs, PEM, and what API servers must trust (empty: someone else tells them)."""

    certificate: bytes
    key: bytes = field(repr=False)
    bundle: bytes

    @property
    def ends_at(self) -> datetime:
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc


class Source(Protocol):
    async def load(self) -> Material:
        """What to serve with from now on. Asked again and again; renewing is the source's business."""


class Directory:
    """Files that someone else renews. All are read each time, whatever their dates say: they are small, and
    a mounted volume changes them together behind one symbolic link."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load(self) -> Material:
        return await asyncio.to_thread(self._read)

    def _read(self) -> Material:
        try:
            ca = self._path / "ca.crt"
            bundle = ca.read_bytes() if ca.exists() else b""
            material = Material(self._bytes("tls.crt"), self._bytes("tls.key"), bundle)
        except OSError as error:
            raise UserError(f"Cannot read the certificate {error.filename}: {error.strerror}.") from error
        server_context(material, f"in {self._path}")
        return material

    def _bytes(self, name: str) -> bytes:
        return (self._path / name).read_bytes()


class ClientAuthority:
    """A file with the authorities, PEM, of which a client must show a certificate."""

    def __init__(self, path: Path, flag: str) -> None:
        self._path = path
        self._flag = flag

    async def load(self) -> bytes:
        return await asyncio.to_thread(self._read)

    def _read(self) -> bytes:
        try:
            content = self._path.read_bytes()
        except OSError as error:
            raise UserError(f"{self._flag}: cannot read {self._path}: {error.strerror}.") from error
        try:
            found = x509.load_pem_x509_certificates(content)
        except ValueError as error:
            raise UserError(f"{self._flag}: {self._path} holds no certificate in PEM.") from error
        if not any(_may_sign(certificate) for certificate in found):
            raise UserError(
                f"{self._flag}: {self._path} holds no certificate authority; name the CA that signed the "
                "client's certificate, not that certificate itself."
            )
        # As parsed: whatever else is in the file, a private key for one, goes no further.
        return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in found)


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return certificate.version is x509.Version.v1  # the old roots have no extensions at all
    except ValueError:
        return False


class Certificates:
    """The certificate served now. `context` is for the listener, `bundle` for the registration."""

    def __init__(
        self,
        source: Source,
        *,
        clients: ClientAuthority | None = None,
        interval_seconds: float = 60.0,
        tell: Callable[[float], None] = lambda ends_at: None,
        dismiss: Callable[[], None] = lambda: None,
    ) -> None:
        self._source = source
        self._clients = clients
        self._trusted = b""  # the clients' authorities, in PEM
        self._dismiss = dismiss
        self._interval_seconds = interval_seconds
        self._tell = tell
        self._material: Material | None = None
        self._inner: ssl.SSLContext | None = None
        self._changed = asyncio.Event()
        self._log = log.get("berth.certs")
        self.context = _bare_context()
        if clients is not None:
            # A connection keeps the mode it began with; only whom it trusts comes from the inner context.
            _ask_for_certificates(self.context)
        # ssl lets the callback move the connection to another context, with or without a server name.
        self.context.sni_callback = self._choose

    @property
    def bundle(self) -> bytes:
        return self._material.bundle if self._material else b""

    async def refresh(self) -> bool:
        """Ask the source once; True if it had something new. Call it before listening."""
        trusted = await self._clients.load() if self._clients else b""
        return self._take(await self._source.load(), trusted)

    def _take(self, material: Material, trusted: bytes) -> bool:
        if material == self._material and trusted == self._trusted:
            return False
        others, self._trusted = trusted != self._trusted, trusted
        self._inner = server_context(material, trusted=trusted)
        if material != self._material:
            self._material = material
            self._tell(material.ends_at.timestamp())
        self._announce()
        if others:
            self._dismiss()
        return True

    async def run(self) -> None:
        """Keep asking. What fails changes nothing: what we serve stays good for a long while. Each is asked
        by itself: a client's authority is taken away though our own certificate cannot be renewed.
        """
        while True:
            await asyncio.sleep(self._interval_seconds)
            material, trusted = self._material, self._trusted
            try:
                material = await self._source.load()
            except (KubeError, UserError) as error:
                self._log.warning("certificate not renewed", error=str(error))
            try:
                trusted = await self._clients.load() if self._clients else b""
            except UserError as error:
                self._log.warning("clients' authority kept as it was", error=str(error))
            if material is not None and self._take(material, trusted):
                self._log.info("certificate changed")

    async def changed(self) -> None:
        """Return when the next change has happened."""
        await self._changed.wait()

    def _announce(self) -> None:
        happened, self._changed = self._changed, asyncio.Event()
        happened.set()

    def _choose(self, connection: ssl.SSLObject, name: str | None, outer: ssl.SSLContext) -> None:
        if self._inner is not None:
            connection.context = self._inner


def server_context(material: Material, where: str = "", *, trusted: bytes = b"") -> ssl.SSLContext:
    """A context that serves this certificate, to the clients of these authorities if there are any; a key
    that does not fit is told, not served.
    """
    context = _bare_context()
    if trusted:
        _ask_for_certificates(context)
        context.load_verify_locations(cadata=trusted.decode())
    with private_file(material.certificate + b"\n" + material.key) as path:
        try:
            context.load_cert_chain(path, password="")  # an encrypted key must not ask the terminal
        except (ssl.SSLError, OSError) as error:
            raise UserError(
                f"The certificate {where} cannot be used: the key and the certificate must be "
                "unencrypted PEM and belong together."
            ) from error
    return context


def _bare_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _ask_for_certificates(context: ssl.SSLContext) -> None:
    """Nobody is let in by a session of before, when another authority was trusted: TLS 1.3 resumes by tickets
    only, and we give none. Every API server that can be told to show a certificate speaks it.
    """
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
