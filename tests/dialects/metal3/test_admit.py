"""Admission as pure rules: an object, what it was before, and what is wrong with it (contract 2.3 to 2.8)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.support.metal3 import SEED, SIX, A, address, claim, pool, ranged

from berth.dialects.metal3 import admit
from berth.dialects.metal3.translate import LONGEST_NAME_PREFIX

Object = dict[str, Any]
OUT_OF_BONDS = "is out of bonds of the pools given"
NOT_AN_ADDRESS = "is not a valid IP address"


def said(faults: Any) -> list[tuple[str, str]]:
    return [(fault.path, fault.text) for fault in faults]


def of_spec(spec: Object) -> list[tuple[str, str]]:
    """What is wrong with a new pool."""
    return said(admit.pool_faults(pool("pool", spec), None))


def edited(before: Object, **changes: Any) -> list[tuple[str, str]]:
    """What is wrong with an edit of a stored pool."""
    return said(admit.pool_faults(pool("pool", {**before, **changes}), pool("pool", before)))


ACCEPTED: list[Any] = [
    pytest.param(SEED, id="M-001"),
    pytest.param({"namePrefix": "a"}, id="M-004"),
    pytest.param(ranged({"start": "10.0.0.1"}), id="M-006"),
    pytest.param(ranged({"subnet": "10.0.0.0/24"}), id="M-007"),
    pytest.param(ranged({"start": "10.0.0.1", "end": "10.0.0.1"}), id="M-010"),
    pytest.param(ranged({"subnet": "2001:db8::/65"}, allocationStrategy="random"), id="M-018"),
    pytest.param(ranged({"subnet": "2001:db8::/32"}), id="M-019"),
    pytest.param(
        ranged({"subnet": "10.0.0.0/24"}, {"subnet": "2001:db8::/64"}, prefix=24), id="families mix"
    ),
    pytest.param(SIX, id="IPv6"),
    pytest.param(ranged({"start": "10.0.0.1", "prefix": 0}, prefix=0), id="prefix 0 is unset"),
    pytest.param(
        ranged({"start": "10.0.0.1", "prefix": 24}, {"start": "2001:db8::1"}, prefix=64), id="own prefix"
    ),
    pytest.param({**A, "gateway": "", "dnsServers": [""]}, id="empty passes every address check"),
    pytest.param({**A, "namePrefix": "a" * LONGEST_NAME_PREFIX}, id="longest name"),
    pytest.param({**A, "namePrefix": "a.b-c1-"}, id="dots and dashes"),
]


@pytest.mark.parametrize("spec", ACCEPTED)
def test_what_is_right_is_accepted(spec: Object) -> None:
    assert of_spec(spec) == []


REFUSED: list[Any] = [
    pytest.param(
        ranged({"gateway": "10.0.0.1"}),
        [("spec.pools[0]", "pool entry must specify at least one of start, end, or subnet")],
        id="M-005",
    ),
    pytest.param(
        ranged({"end": "10.0.0.9"}),
        [("spec.pools[0]", "end alone gives no range: set start or subnet too")],
        id="M-008",
    ),
    pytest.param(
        ranged({"start": "192.168.0.149", "end": "192.168.0.140"}),
        [("spec.pools[0]", "end IP 192.168.0.140 is before start IP 192.168.0.149")],
        id="M-009",
    ),
    pytest.param({**A, "gateway": "256.1.1.1"}, [("spec.gateway", NOT_AN_ADDRESS)], id="M-011 gateway"),
    pytest.param(
        {**A, "dnsServers": ["8.8.8.8", "foo"]}, [("spec.dnsServers[1]", NOT_AN_ADDRESS)], id="M-011 dns"
    ),
    pytest.param(
        ranged({"start": "10.0.0.1", "gateway": "x", "dnsServers": ["y"]}),
        [("spec.pools[0].gateway", NOT_AN_ADDRESS), ("spec.pools[0].dnsServers[0]", NOT_AN_ADDRESS)],
        id="M-011 entry",
    ),
    pytest.param(ranged({"start": "foo"}), [("spec.pools[0]", 'invalid Start IP "foo"')], id="M-011 start"),
    pytest.param(
        ranged({"start": "10.0.0.1", "end": "foo"}),
        [("spec.pools[0]", 'invalid End IP "foo"')],
        id="M-011 end",
    ),
    pytest.param(
        {**A, "prefix": -1},
        [("spec.prefix", "is not a prefix length of an IPv4 address: 0 to 32")],
        id="M-013",
    ),
    pytest.param(
        {**A, "prefix": 64},
        [("spec.prefix", "is not a prefix length of an IPv4 address: 0 to 32")],
        id="M-014",
    ),
    pytest.param(
        ranged({"start": "10.0.0.1", "prefix": 64}),
        [("spec.pools[0].prefix", "is not a prefix length of an IPv4 address: 0 to 32")],
        id="M-014 entry",
    ),
    pytest.param(
        {**SIX, "prefix": 129},
        [("spec.prefix", "is not a prefix length of an IPv6 address: 0 to 128")],
        id="M-012",
    ),
    pytest.param(
        ranged({"start": "10.0.0.1"}, allocationStrategy="random"),
        [
            (
                "spec.pools[0]",
                'cannot be used with allocationStrategy "random": '
                "pool with Start requires End or Subnet to determine size",
            )
        ],
        id="M-016",
    ),
    pytest.param(
        ranged({"subnet": "2001:db8::/64"}, allocationStrategy="random"),
        [("spec.pools[0]", 'cannot be used with allocationStrategy "random": pool size exceeds int range')],
        id="M-017",
    ),
    pytest.param(
        ranged({"start": "10.0.1.1", "subnet": "10.0.0.0/24"}, allocationStrategy="random"),
        [
            (
                "spec.pools[0]",
                'cannot be used with allocationStrategy "random": '
                "end IP 10.0.0.255 is before start IP 10.0.1.1",
            )
        ],
        id="random, start outside",
    ),
    pytest.param(
        {**SEED, "preAllocations": {"a": "192.168.0.12", "b": "192.168.0.12"}},
        [("spec.preAllocations.b", 'IP address is already pre-allocated to claim "a"')],
        id="M-020",
    ),
    pytest.param(
        {**SIX, "preAllocations": {"a": "2001:db8::1", "b": "2001:0db8:0:0:0:0:0:1"}},
        [("spec.preAllocations.b", 'IP address is already pre-allocated to claim "a"')],
        id="M-021",
    ),
    pytest.param(
        {**A, "preAllocations": {"a": "10.0.0.10", "b": "::ffff:a00:a"}},
        [("spec.preAllocations.b", 'IP address is already pre-allocated to claim "a"')],
        id="IPv4-mapped is the same",
    ),
    pytest.param(
        ranged({"subnet": "192.168.0.0/24"}, preAllocations={"a": "10.0.0.5"}),
        [("spec.preAllocations", OUT_OF_BONDS)],
        id="M-022",
    ),
    pytest.param(
        ranged({"subnet": "10.9.0.0/24"}, preAllocations={"a": "10.9.0.0"}),
        [("spec.preAllocations", OUT_OF_BONDS)],
        id="M-029",
    ),
    pytest.param(
        ranged({"start": "10.0.0.1"}, preAllocations={"a": "2001:db8::1"}),
        [("spec.preAllocations", OUT_OF_BONDS)],
        id="M-030",
    ),
    pytest.param(
        {"namePrefix": "a", "preAllocations": {"a": "10.0.0.1"}},
        [("spec.preAllocations", OUT_OF_BONDS)],
        id="no pools, nothing is in bounds",
    ),
    pytest.param(
        {**A, "preAllocations": {"v": "foo"}},
        [("spec.preAllocations.v", NOT_AN_ADDRESS), ("spec.preAllocations", OUT_OF_BONDS)],
        id="both are said",
    ),
    pytest.param(
        ranged({"start": "10.0.0.1", "end": "2001:db8::1"}),
        [("spec.pools[0]", "start IP 10.0.0.1 and end IP 2001:db8::1 are of different families")],
        id="X-23",
    ),
    pytest.param(
        ranged({"gateway": "10.0.0.1"}, {"end": "10.0.0.1"}, gateway="x"),
        [
            ("spec.gateway", NOT_AN_ADDRESS),
            ("spec.pools[0]", "pool entry must specify at least one of start, end, or subnet"),
            ("spec.pools[1]", "end alone gives no range: set start or subnet too"),
        ],
        id="every rule is looked at",
    ),
]


@pytest.mark.parametrize(("spec", "causes"), REFUSED)
def test_what_is_wrong_is_named_with_its_path(spec: Object, causes: list[tuple[str, str]]) -> None:
    assert of_spec(spec) == causes


@pytest.mark.parametrize(
    "prefix", ["Bad_Prefix", "-a", "a..b", "ä", "a/b", "", "a" * (LONGEST_NAME_PREFIX + 1)]
)
def test_a_name_prefix_must_begin_object_names(prefix: str) -> None:
    """M-072: upstream lets it pass and fails every claim; M-002, M-003 are the schema's."""
    assert [path for path, _ in of_spec({**A, "namePrefix": prefix})] == ["spec.namePrefix"]


def test_a_bad_subnet_is_named_with_the_reason() -> None:
    """M-011."""
    ((path, text),) = of_spec(ranged({"subnet": "x/24"}))
    assert path == "spec.pools[0]"
    assert text.startswith('invalid Subnet "x/24": ')


def test_name_prefix_and_strategy_stay() -> None:
    """M-024, M-025, M-026: an absent strategy is `sequential` on both sides."""
    assert edited(A, namePrefix="b") == [("spec.namePrefix", "cannot be modified")]
    assert edited(A, allocationStrategy="random") == [
        ("spec.allocationStrategy", "cannot be modified after creation")
    ]
    assert edited(A, allocationStrategy="sequential") == []
    assert edited({**A, "allocationStrategy": "sequential"}, allocationStrategy="") == []


def test_an_update_spells_bounds_correctly() -> None:
    """M-023."""
    assert edited(A, preAllocations={"v": "10.0.0.99"}) == [
        ("spec.preAllocations", "is out of bounds of the pools given")
    ]


def test_what_is_in_use_must_stay_inside() -> None:
    """M-027, M-028: one cause per address."""
    stored = pool("pool", A)
    stored["status"] = {"indexes": {"c1": "10.0.0.12", "c2": "10.0.0.11", "c3": "10.0.0.10"}}
    smaller = pool("pool", {**A, "pools": [{"start": "10.0.0.10", "end": "10.0.0.10"}]})
    assert (
        said(admit.pool_faults(smaller, stored))
        == [("spec.pools", "is in use but out of bounds of the pools given")] * 2
    )
    larger = pool("pool", {**A, "pools": [{"start": "10.0.0.10", "end": "10.0.0.20"}]})
    assert said(admit.pool_faults(larger, stored)) == []


def test_what_was_outside_before_does_not_hold_up_an_edit() -> None:
    """X-24: an address made by hand, or by upstream for `end` alone (X-21), lies in none of the ranges."""
    stored = pool("pool", A)
    stored["status"] = {"indexes": {"c1": "10.0.0.12", "ext": "10.9.9.9", "odd": "fe80::1%eth0"}}
    larger = pool("pool", {**A, "pools": [{"start": "10.0.0.10", "end": "10.0.0.20"}]})
    assert said(admit.pool_faults(larger, stored)) == []
    smaller = pool("pool", {**A, "pools": [{"start": "10.0.0.10", "end": "10.0.0.11"}]})
    assert [fault.value for fault in admit.pool_faults(smaller, stored)] == ["10.0.0.12"]


LEGACY = {
    **ranged({"end": "10.0.0.9"}, {"start": "10.0.0.1", "prefix": 64}, name_prefix="Bad_Prefix"),
    "preAllocations": {"a": "10.0.0.0"},
}


def test_what_upstream_accepted_before_can_still_be_held_and_repaired() -> None:
    """X-24: metadata is never refused for an old fault; a spec only for what the edit itself breaks."""
    assert of_spec(LEGACY)
    stored = pool("pool", LEGACY)
    stored["status"] = {"indexes": {"far": "192.168.0.1"}}
    labelled = copy.deepcopy(stored)
    labelled["metadata"]["finalizers"] = ["ippool.ipam.metal3.io"]
    assert said(admit.pool_faults(labelled, stored)) == []
    assert edited(LEGACY, gateway="10.0.0.1") == []
    assert edited(LEGACY, prefix=40) == []  # no entry takes the pool's own prefix
    assert edited(LEGACY, gateway="x") == [("spec.gateway", NOT_AN_ADDRESS)]


def test_overlapping_entries_are_accepted_with_a_warning() -> None:
    """M-033: an address belongs to the first; M-032, overlap between pools, is not looked at."""
    overlapping = ranged(
        {"start": "10.0.0.5", "end": "10.0.0.9"}, {"subnet": "2001:db8::/64"}, {"subnet": "10.0.0.0/29"}
    )
    assert of_spec(overlapping) == []
    assert admit.warnings(pool("pool", overlapping)) == [
        "spec.pools[0] and spec.pools[2] overlap; an address belongs to the earlier entry"
    ]
    assert admit.warnings(pool("pool", SEED)) == []
    assert admit.warnings(claim("c")) == []


def test_one_wide_entry_overlaps_all_that_lie_in_it() -> None:
    """Not only its neighbour."""
    spec = ranged(
        {"subnet": "10.0.0.0/16"},
        {"start": "10.0.1.1", "end": "10.0.1.2"},
        {"start": "10.0.2.1", "end": "10.0.2.2"},
    )
    assert len(admit.warnings(pool("pool", spec))) == 2


def test_warnings_stop_before_they_flood() -> None:
    spec = ranged(*({"start": "10.0.0.1", "end": "10.0.0.9"} for _ in range(100)))
    assert len(admit.warnings(pool("pool", spec))) == admit.EVERYTHING_SAID


def test_defaults_fill_the_strategy_and_drop_zeros() -> None:
    """M-001, contract 2.2."""
    sent = pool(
        "pool", {**ranged({"start": "10.0.0.1", "prefix": 0, "gateway": ""}), "prefix": 0, "dnsServers": []}
    )
    assert admit.defaulted(sent)["spec"] == {
        "namePrefix": "a",
        "pools": [{"start": "10.0.0.1"}],
        "allocationStrategy": "sequential",
    }
    kept = pool("pool", {**A, "allocationStrategy": "random"})
    assert admit.defaulted(kept) == kept
    assert admit.defaulted(claim("c", "")) == claim("c", "")


@pytest.mark.parametrize("spec", ["text", None, {"pools": "text"}, {"pools": ["text", None, 3]}, []])
def test_defaults_leave_nonsense_to_the_schema(spec: Any) -> None:
    obj = {**pool("pool"), "spec": spec}
    assert admit.defaulted(obj)["metadata"] == obj["metadata"]


def test_a_claim_names_its_pool_for_good() -> None:
    """M-034, M-035, M-038, M-039."""
    assert said(admit.claim_faults(claim("c", "nowhere"), None)) == []
    assert said(admit.claim_faults(claim("c", ""), None)) == [("spec.pool.name", "cannot be empty")]
    for key in ("name", "namespace", "kind"):
        changed = claim("c")
        changed["spec"]["pool"][key] = "other"
        assert said(admit.claim_faults(changed, claim("c"))) == [("spec.pool", "cannot be modified")]
    for key in ("apiVersion", "uid"):
        changed = claim("c")
        changed["spec"]["pool"][key] = "other"
        assert said(admit.claim_faults(changed, claim("c"))) == []


def test_a_requested_address_must_be_one() -> None:
    """M-036, M-037, M-040; one that was let in while no webhook answered does not hold up its deletion."""
    wrong = [("metadata.annotations.ipAddress", NOT_AN_ADDRESS)]
    assert said(admit.claim_faults(claim("c", wants="not-an-ip"), None)) == wrong
    assert said(admit.claim_faults(claim("c", wants=""), None)) == []
    assert said(admit.claim_faults(claim("c", wants="2001:DB8::1"), None)) == []
    assert said(admit.claim_faults(claim("c", wants="10.0.0.256"), claim("c"))) == wrong
    assert said(admit.claim_faults(claim("c", wants="bad"), claim("c", wants="bad"))) == []


def test_an_address_names_pool_claim_and_address() -> None:
    """M-041."""
    assert said(admit.address_faults(address("x", "10.0.0.1", "c"), None)) == []
    assert said(admit.address_faults(address("x", "", "", ""), None)) == [
        ("spec.pool.name", "cannot be empty"),
        ("spec.claim.name", "cannot be empty"),
        ("spec.address", "cannot be empty"),
    ]
    annotated = address("x", "foo", "c", annotations={"ipAddress": "bar"})
    assert said(admit.address_faults(annotated, None)) == [
        ("spec.address", NOT_AN_ADDRESS),
        ("metadata.annotations.ipAddress", NOT_AN_ADDRESS),
    ]


def test_an_address_stays_what_it_is() -> None:
    """M-042, M-043."""
    stored = address("x", "10.0.0.1", "c")
    for field, changed in (
        ("address", address("x", "10.0.0.2", "c")),
        ("pool", address("x", "10.0.0.1", "c", "other")),
        ("claim", address("x", "10.0.0.1", "other")),
    ):
        assert said(admit.address_faults(changed, stored)) == [(f"spec.{field}", "cannot be modified")]
    richer = copy.deepcopy(stored)
    richer["spec"] |= {"prefix": 24, "gateway": "10.0.0.254", "dnsServers": ["8.8.8.8"]}
    assert said(admit.address_faults(richer, stored)) == []


def test_the_six_paths_are_answered() -> None:
    """Contract 2.1: all of them, whichever we register ourselves."""
    kinds = ("ippool", "ipclaim", "ipaddress")
    expected = {
        f"/{verb}-ipam-metal3-io-v1alpha1-{kind}" for verb in ("mutate", "validate") for kind in kinds
    }
    assert set(admit.routes()) == expected
