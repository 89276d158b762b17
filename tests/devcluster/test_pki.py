"""The certificates of one cluster."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store

from berth.devcluster import kubeconfig, pki


@pytest.fixture
def certificates(tmp_path: Path) -> pki.Pki:
    return pki.make(tmp_path / "pki")


def _read(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def test_nothing_is_readable_by_others(certificates: pki.Pki) -> None:
    assert {file.stat().st_mode & 0o777 for file in certificates.directory.iterdir()} == {0o600}
    assert certificates.directory.stat().st_mode & 0o777 == 0o700


def test_the_administrator_is_in_the_group_that_may_do_everything(certificates: pki.Pki) -> None:
    subject = _read(certificates.certificate("admin")).subject

    assert subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:masters"


def test_every_certificate_satisfies_a_strict_verifier(certificates: pki.Pki) -> None:
    store = Store([_read(certificates.ca)])
    name = x509.DNSName("kubernetes.default.svc")
    verifier = PolicyBuilder().store(store).build_server_verifier(name)

    assert verifier.verify(_read(certificates.certificate("server")), [])
    for client in ("admin", "etcd-client"):
        ssl.create_default_context(cafile=certificates.ca).load_cert_chain(
            certificates.certificate(client), certificates.key(client)
        )


def test_the_kubeconfig_is_private_and_carries_everything_itself(
    certificates: pki.Pki, tmp_path: Path
) -> None:
    kubeconfig.write(tmp_path / "kubeconfig", certificates, "https://127.0.0.1:1")
    text = (tmp_path / "kubeconfig").read_text()

    assert (tmp_path / "kubeconfig").stat().st_mode & 0o777 == 0o600
    assert "server: https://127.0.0.1:1" in text
    assert str(certificates.directory) not in text
