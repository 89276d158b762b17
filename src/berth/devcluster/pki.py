"""The keys and certificates of one dev cluster, made when it starts and kept in its directory.

One authority signs three certificates: the server's (etcd and kube-apiserver both serve with it on
loopback), the client certificate with which kube-apiserver reaches etcd, and the administrator's, in
`system:masters`. Everything is a P-256 key, because those are made in a millisecond.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from berth.devcluster.files import write_private

LIFETIME = timedelta(days=365)
# A clock that is a little behind (a laptop that slept) must not refuse a certificate made just now.
BACKDATED = timedelta(hours=1)


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


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make(directory: Path) -> Pki:
    """All files, new; what an earlier start left is written over together, never mixed."""
    pki = Pki(directory)
    directory.mkdir(mode=0o700, exist_ok=True)
    authority = _make_authority()
    write_private(pki.ca, _pem(authority.certificate))
    _issue(pki, authority, "server", _name("kube-apiserver"))
    _issue(pki, authority, "etcd-client", _name("kube-apiserver-etcd-client"))
    _issue(pki, authority, "admin", _name("berth-admin", group="system:masters"))
    write_private(pki.service_account_key, _key_pem(ec.generate_private_key(ec.SECP256R1())))
    return pki


def _make_authority() -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("berth-devcluster")
    builder = _builder(name, name, key).add_extension(x509.BasicConstraints(True, 0), critical=True)
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    return _Authority(builder.add_extension(usage, critical=True).sign(key, hashes.SHA256()), key)


def _issue(pki: Pki, authority: _Authority, name: str, subject: x509.Name) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(subject, authority.certificate.subject, key)
    # etcd checks its own serving certificate as a client's too, hence both usages on all of them.
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(usages, critical=False).add_extension(issuer, critical=False)
    if name == "server":
        builder = builder.add_extension(_server_names(), critical=False)
    write_private(pki.certificate(name), _pem(builder.sign(authority.key, hashes.SHA256())))
    write_private(pki.key(name), _key_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - BACKDATED,
        not_valid_after=now + LIFETIME,
    )
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _server_names() -> x509.SubjectAlternativeName:
    hosts = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    addresses = ["127.0.0.1", "::1", "10.96.0.1"]
    return x509.SubjectAlternativeName(
        [x509.DNSName(host) for host in hosts]
        + [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    )


def _name(common_name: str, group: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if group:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(parts)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
