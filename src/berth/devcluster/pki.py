"""The keys and certificates of one dev cluster, made when it starts and kept in its directory.

One authority signs three certificates: the server's (etcd and kube-apiserver both serve with it on
loopback), the client certificate with which kube-apiserver reaches etcd, and the administrator's, in
`system:masters`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from berth.control.x509 import Subject, issue, make_authority
from berth.devcluster.files import write_private

LIFETIME = timedelta(days=365)
SERVER_NAMES = (
    *("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
    *("127.0.0.1", "::1", "10.96.0.1"),
)


@dataclass(frozen=True, slots=True)
class Pki:
    """Where each file is; `make` writes them, a second start finds them again."""

    directory: Path

    @property
    def ca(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def service_account_key(self) -> Path:
        return self.directory / "service-account.key"

    def certificate(self, name: str) -> Path:
        return self.directory / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.directory / f"{name}.key"


def make(directory: Path) -> Pki:
    """All files, new; what an earlier start left is written over together, never mixed."""
    pki = Pki(directory)
    directory.mkdir(mode=0o700, exist_ok=True)
    now = datetime.now(UTC)
    authority = make_authority(now, LIFETIME, "berth-devcluster")
    write_private(pki.ca, authority.certificate)
    # etcd checks its own serving certificate as a client's too, hence both usages on all of them.
    for name, subject in {
        "server": Subject("kube-apiserver", is_client=True),
        "etcd-client": Subject("kube-apiserver-etcd-client", is_client=True),
        "admin": Subject("berth-admin", "system:masters", is_client=True),
    }.items():
        pair = issue(authority, SERVER_NAMES if name == "server" else (), now, LIFETIME, subject)
        write_private(pki.certificate(name), pair.certificate)
        write_private(pki.key(name), pair.key)
    # kube-apiserver finds the public half of this one only in the older of the two formats.
    format_ = serialization.PrivateFormat.TraditionalOpenSSL
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(serialization.Encoding.PEM, format_, serialization.NoEncryption())
    write_private(pki.service_account_key, pem)
    return pki
