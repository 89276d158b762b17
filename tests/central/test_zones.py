"""Zones: a file is taken whole or not at all, and the sentence says what is wrong with it."""

from __future__ import annotations

import pytest

from berth.central.zones import EXAMPLE, load_zones, parse_zones
from berth.errors import UserError


def test_the_example_has_the_documents_three_zones() -> None:
    zones = load_zones(None)
    assert zones.names == ("hnet-private", "hnet-public", "inet")
    assert "hnet-private/6" not in zones.pools
    assert "inet/6" in zones.pools
    assert parse_zones(EXAMPLE, "x") == zones


def test_network_and_broadcast_can_be_skipped_and_ranges_have_none() -> None:
    prefixes = "[192.0.2.0/29, 198.51.100.5-198.51.100.9]"
    text = f"zones: [{{name: a, ipv4: {prefixes}, skip_network_and_broadcast: true}}]"
    (pool,) = parse_zones(text, "x").pools.values()
    assert [(one.first & 255, one.last & 255) for one in pool.exclusions] == [(0, 0), (7, 7)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "at least one zone"),
        ("zones: []", "at least one zone"),
        ("zones: {a: b}", "at least one zone"),
        (":", "is not YAML|at least one zone"),
        ("{", "is not YAML"),
        ("zones: [{ipv4: [192.0.2.0/24]}]", "name must be"),
        ("zones: [{name: a/b, ipv4: [192.0.2.0/24]}]", "name must be"),
        ("zones: [{name: a, ipv4: [192.0.2.0/24]}, {name: a, ipv4: [198.51.100.0/24]}]", "listed twice"),
        ("zones: [{name: a}]", "neither ipv4 nor ipv6"),
        ("zones: [{name: a, ipv4: 192.0.2.0/24}]", "must be a list"),
        ("zones: [{name: a, ipv4: [foo]}]", "foo"),
        ("zones: [{name: a, ipv4: ['2a05::/64']}]", "not of family ipv4"),
        ("zones: [{name: a, ipv4: [192.0.2.0/24], color: red}]", "unknown key 'color'"),
        ("zones: [{name: a, ipv4: [192.0.2.0/24], 1: x, color: red}]", "unknown key '1'"),
        ("zones: [{name: a, ipv4: [192.0.2.0/24]}, {name: b, ipv4: [192.0.2.128/25]}]", "overlap"),
        ("zones: [{name: a, ipv4: [192.0.2.0/24], skip_network_and_broadcast: 3}]", "true or false"),
    ],
)
def test_a_faulty_file_is_refused_with_its_fault(text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        parse_zones(text, "the file")
