"""Certificates for tests: an authority that signs servers and clients, in memory or as files."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from berth.control import x509

LIFE = timedelta(hours=1)


class Pair(x509.Pair):
    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        certificate.write_bytes(self.certificate)
        key.write_bytes(self.key)
        return certificate, key


class Authority:
    def __init__(self, name: str = "test authority") -> None:
        self._pair = x509.make_authority(datetime.now(UTC), LIFE, name)
        self.pem = self._pair.certificate

    def issue(self, name: str, *hosts: str) -> Pair:
        subject = x509.Subject(name, is_client=True)
        made = x509.issue(self._pair, hosts, datetime.now(UTC), LIFE, subject)
        return Pair(made.certificate, made.key)

    def server(self, directory: Path, *hosts: str, clients: bool = False) -> ssl.SSLContext:
        """What a server with such a certificate listens with; `clients`: it wants theirs too."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self.issue("server", *hosts).write(directory, "server"))
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=self.pem.decode())
        return context
