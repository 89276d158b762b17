"""What T13 counts: writes to one object, not to all that had its name."""

from __future__ import annotations

from tests.faults.proxy import Write
from tests.faults.refusals import by_object

PATH = "/apis/ipam.metal3.io/v1alpha1/namespaces/n/ipaddresses/p-10-0-0-1"


def writes(*methods: str) -> list[Write]:
    return [Write(number, method, PATH, float(number)) for number, method in enumerate(methods)]


def test_an_address_given_out_again_is_another_object() -> None:
    """The first PUT was refused: the object was still there."""
    found = by_object(writes("DELETE", "PUT", "PUT", "DELETE", "PUT"), {0: 200, 2: 200, 3: 200, 4: 200})
    assert list(found.values()) == [[0.0, 1.0, 2.0], [3.0, 4.0]]


def test_writes_to_a_living_object_are_counted_together() -> None:
    status = Write(3, "PATCH", f"{PATH}/status", 3.0)
    found = by_object([*writes("PATCH", "PATCH", "DELETE"), status], {0: 200, 1: 409, 2: 200, 3: 200})
    assert list(found.values()) == [[0.0, 1.0, 2.0, 3.0]]
