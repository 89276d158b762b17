"""authority: rings are renewed in time, and nobody ever meets a certificate it cannot trust yet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from berth.control.x509 import Keyring, Pair, Policy, issue, make_authority, new_keyring, renewed

START = datetime(2030, 1, 1, tzinfo=UTC)
NAMES = ("berth.example.svc", "127.0.0.1")
POLICY = Policy(authority=timedelta(days=300), certificate=timedelta(days=30), overlap=timedelta(hours=1))


def days(count: float) -> datetime:
    return START + timedelta(days=count)


def trusts(bundle: bytes, serving: Pair, at: datetime, name: str = NAMES[0]) -> bool:
    store = Store(x509.load_pem_x509_certificates(bundle))
    verifier = PolicyBuilder().store(store).time(at).build_server_verifier(x509.DNSName(name))
    try:
        verifier.verify(serving.x509, [])
    except VerificationError:
        return False
    return True


def ring_at_start() -> Keyring:
    return new_keyring(NAMES, START, POLICY)


def test_a_new_ring_is_trusted_for_its_names_and_no_others() -> None:
    ring = ring_at_start()
    assert trusts(ring.bundle, ring.serving, START)
    assert not trusts(ring.bundle, ring.serving, START, "other.example.svc")


def test_a_clock_that_is_half_an_hour_behind_trusts_it_too() -> None:
    ring = ring_at_start()
    assert trusts(ring.bundle, ring.serving, START - timedelta(minutes=30))


def test_a_stranger_is_not_trusted() -> None:
    stranger = issue(make_authority(START, POLICY.authority), NAMES, START, POLICY.certificate)
    assert not trusts(ring_at_start().bundle, stranger, START)


def test_nothing_changes_while_nothing_is_due() -> None:
    ring = ring_at_start()
    assert renewed(ring, NAMES, days(19), POLICY) is ring


def test_the_certificate_is_renewed_in_the_last_third_of_its_life_by_the_same_authority() -> None:
    ring = ring_at_start()
    later = renewed(ring, NAMES, days(21), POLICY)
    assert later.authorities == ring.authorities
    assert later.serving.ends_at == days(51)


def test_a_new_name_asks_for_a_new_certificate() -> None:
    ring = ring_at_start()
    later = renewed(ring, (*NAMES, "localhost"), days(1), POLICY)
    assert later.authorities == ring.authorities
    assert trusts(later.bundle, later.serving, days(1), "localhost")


def test_a_new_authority_is_announced_before_it_signs() -> None:
    ring = ring_at_start()
    announced = renewed(ring, NAMES, days(201), POLICY)
    assert len(announced.authorities) == 2
    assert trusts(ring.bundle, announced.serving, days(201)), "servers that know only the old one still trust"
    in_use = renewed(announced, NAMES, days(201) + timedelta(hours=2), POLICY)
    assert in_use.authorities == announced.authorities
    assert in_use.authorities[1].signed(in_use.serving)
    assert trusts(announced.bundle, in_use.serving, days(202))


def test_an_old_authority_leaves_the_ring_when_it_ends() -> None:
    ring = renewed(ring_at_start(), NAMES, days(201), POLICY)
    later = renewed(ring, NAMES, days(301), POLICY)
    assert later.authorities == ring.authorities[1:]


def test_at_every_hour_of_years_the_bundle_known_an_hour_ago_trusts_what_is_served() -> None:
    policy = Policy(timedelta(days=9), timedelta(days=2), timedelta(hours=1))
    ring = new_keyring(NAMES, START, policy)
    made = 0
    for hour in range(24 * 60):
        at = START + timedelta(hours=hour)
        known = ring.bundle
        ring = renewed(ring, NAMES, at, policy)
        made += ring.bundle != known
        assert trusts(known, ring.serving, at), f"hour {hour}"
    assert made >= 8


def test_a_ring_left_alone_for_too_long_is_made_anew() -> None:
    later = renewed(ring_at_start(), NAMES, days(400), POLICY)
    assert len(later.authorities) == 1
    assert trusts(later.bundle, later.serving, days(400))


def test_a_certificate_does_not_outlive_its_authority() -> None:
    authority = make_authority(START, timedelta(days=1))
    assert issue(authority, NAMES, START, timedelta(days=30)).ends_at == days(1)


def test_keys_do_not_show() -> None:
    assert "PRIVATE" not in repr(ring_at_start())


def test_a_certificate_without_the_marks_of_ours_is_an_error() -> None:
    ring = ring_at_start()
    with pytest.raises(ValueError, match="SubjectKeyIdentifier"):
        ring.serving.signed(ring.serving)
