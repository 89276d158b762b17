"""A certificate authority as values: make, issue, renew. Pure but for fresh keys, all P-256, which are
made in a millisecond. The webhooks have an authority of their own, and so has every dev cluster.

A `Keyring` holds one or two authorities (oldest first) and the serving certificate. `renewed()` says what it
should be now. A new authority joins the ring first and only signs after `overlap`: by then every API server
has been told to trust it, because the webhook configurations carry all authorities of the ring. So neither a
new certificate nor a new authority ever meets an API server that does not trust it.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Extension = TypeVar("Extension", bound=x509.ExtensionType)

# An API server whose clock is a little behind must not refuse what was made just now.
BACKDATED = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Policy:
    """How long things live. The last third of a life is for renewing."""

    authority: timedelta = timedelta(days=3650)
    certificate: timedelta = timedelta(days=90)
    overlap: timedelta = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose a certificate is, and whether a client shows it too."""

    name: str
    group: str = ""
    is_client: bool = False

    @property
    def full_name(self) -> x509.Name:
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, self.name)]
        if self.group:
            parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, self.group))
        return x509.Name(parts)

    @property
    def usages(self) -> list[x509.ObjectIdentifier]:
        client = [ExtendedKeyUsageOID.CLIENT_AUTH] if self.is_client else []
        return [ExtendedKeyUsageOID.SERVER_AUTH, *client]


WEBHOOK = Subject("berth webhook")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both PEM. The key never shows."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"Pair({self.x509.subject.rfc4514_string()})"

    @property
    def x509(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate)

    @property
    def made_at(self) -> datetime:
        return self.x509.not_valid_before_utc + BACKDATED

    @property
    def ends_at(self) -> datetime:
        return self.x509.not_valid_after_utc

    def is_due(self, now: datetime) -> bool:
        """Whether the last third of its life has begun."""
        return now >= self.ends_at - (self.ends_at - self.made_at) / 3

    def signed(self, other: Pair) -> bool:
        issuer = _extension(other.x509, x509.AuthorityKeyIdentifier)
        return issuer.key_identifier == _extension(self.x509, x509.SubjectKeyIdentifier).digest


@dataclass(frozen=True, slots=True)
class Keyring:
    authorities: tuple[Pair, ...]
    serving: Pair

    @property
    def bundle(self) -> bytes:
        """What API servers must trust: every authority of the ring."""
        return b"".join(authority.certificate for authority in self.authorities)


def new_keyring(names: Sequence[str], now: datetime, policy: Policy) -> Keyring:
    authority = make_authority(now, policy.authority)
    return Keyring((authority,), issue(authority, names, now, policy.certificate))


def renewed(ring: Keyring, names: Sequence[str], now: datetime, policy: Policy) -> Keyring:
    """The same ring if nothing is due; everything new if it has been left alone for too long."""
    if ring.authorities[-1].ends_at <= now:
        return new_keyring(names, now, policy)
    ring = _with_authorities(ring, now, policy)
    signer = _signer(ring, now, policy)
    if signer.signed(ring.serving) and not ring.serving.is_due(now) and _covers(ring.serving, names):
        return ring
    return replace(ring, serving=issue(signer, names, now, policy.certificate))


def _with_authorities(ring: Keyring, now: datetime, policy: Policy) -> Keyring:
    kept = tuple(each for each in ring.authorities if each.ends_at > now)
    if kept[-1].is_due(now):
        kept = (*kept, make_authority(now, policy.authority))
    return ring if kept == ring.authorities else replace(ring, authorities=kept)


def _signer(ring: Keyring, now: datetime, policy: Policy) -> Pair:
    """The newest authority that has been known for long enough, else the oldest there is."""
    known = [each for each in ring.authorities if now - each.made_at >= policy.overlap]
    return known[-1] if known else ring.authorities[0]


def _covers(pair: Pair, names: Sequence[str]) -> bool:
    return set(_general_names(names)) <= set(_extension(pair.x509, x509.SubjectAlternativeName))


def make_authority(now: datetime, life: timedelta, name: str = "") -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own: verifiers look issuers up by name, and two of ours may be trusted at once.
    subject = Subject(name or f"berth webhook authority {secrets.token_hex(4)}").full_name
    builder = (
        _builder(subject, key, now, life)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder, key, key)


def issue(
    authority: Pair,
    names: Sequence[str],
    now: datetime,
    life: timedelta,
    subject: Subject = WEBHOOK,
) -> Pair:
    """A certificate for these DNS names and IP addresses, if any, not outliving its authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.x509
    life = min(life, authority.ends_at - now)
    identifier = _extension(issuer, x509.SubjectKeyIdentifier)
    builder = (
        _builder(subject.full_name, key, now, life)
        .issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(subject.usages), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(_general_names(names)), critical=False)
    return _pair(builder, key, _load_key(authority.key))


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + life)
    )


def _pair(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> Pair:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(builder.sign(signer, hashes.SHA256()).public_bytes(pem), private)


def _load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not an elliptic curve key")
    return key


def _extension(certificate: x509.Certificate, kind: type[Extension]) -> Extension:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound as error:
        raise ValueError(f"the certificate has no {kind.__name__}") from error


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_names(names: Sequence[str]) -> list[x509.GeneralName]:
    return [_general_name(name) for name in names]


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
