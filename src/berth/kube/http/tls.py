"""Certificates for talking to the API server → an SSL context, and the one sentence when they are no good.

Used by `auth.py`; `private_file` by the webhook's certificates too. Material comes as a file or as data from
the kubeconfig; the private key is hidden from repr.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from berth.errors import UserError


@dataclass(frozen=True, slots=True)
class Pem:
    """PEM text from a file, which may be replaced while we run, or in line."""

    file: Path | None = None
    data: bytes = field(default=b"", repr=False)

    def __bool__(self) -> bool:
        return bool(self.file or self.data)

    def read(self) -> bytes:
        if self.file is None:
            return self.data
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise UserError(f"Cannot read {self.file}: {error.strerror or error}.") from error


@dataclass(frozen=True, slots=True)
class ServerTrust:
    """How the server proves itself: our CA, the system's when there is none, or not at all."""

    ca: Pem = field(default_factory=Pem)
    insecure: bool = False

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self._authorities())
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _authorities(self) -> str | None:
        # A cluster's CA replaces the system's: a public authority must not be able to vouch for our server.
        if self.insecure or not self.ca:
            return None
        text = self.ca.read().decode("ascii", errors="replace")
        try:
            ssl.create_default_context(cadata=text)
        except (ssl.SSLError, ValueError) as error:
            where = self.ca.file or "the kubeconfig's certificate-authority-data"
            raise UserError(f"No certificate authority can be read from {where}: it is not PEM.") from error
        return text


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """How we prove ourselves, when we do it by certificate."""

    certificate: Pem = field(default_factory=Pem)
    key: Pem = field(default_factory=Pem)

    def __bool__(self) -> bool:
        return bool(self.certificate)

    def load_into(self, context: ssl.SSLContext) -> None:
        content = self.certificate.read() + b"\n" + (self.key.read() if self.key else b"")
        with private_file(content) as path:
            try:
                context.load_cert_chain(path, password="")  # an encrypted key must not ask the terminal
            except OSError as error:  # an SSLError is one
                where = self.certificate.file or "the kubeconfig's client-certificate-data"
                raise UserError(
                    f"The client certificate in {where} cannot be used: the key and the certificate must be "
                    "unencrypted PEM and belong together."
                ) from error


@contextmanager
def private_file(content: bytes) -> Iterator[str]:
    """ssl reads keys from files only. Ours never reaches a disk where memory files exist (Linux)."""
    try:
        file, name = _nameless()
        file.write(content)
        file.flush()
    except OSError as error:
        raise UserError(f"A private key cannot be kept in a file: {error.strerror or error}.") from error
    with file:
        yield name


def _nameless() -> tuple[IO[bytes], str]:
    if not hasattr(os, "memfd_create"):
        file = tempfile.NamedTemporaryFile()  # noqa: SIM115 - its user closes it; mode 0600
        return file, file.name
    memory = os.fdopen(os.memfd_create("berth-key"), "wb")
    return memory, f"/proc/self/fd/{memory.fileno()}"
