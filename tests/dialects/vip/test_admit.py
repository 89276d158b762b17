"""The rules of admission by themselves, in upstream's order."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.operator import built

from berth.dialects.vip import kinds
from berth.dialects.vip.admit import virtual_ip_fault, webhooks

ON = {kinds.MIGRATE: ""}


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ({"annotations": ON}, {}, "VirtualIP migration can not be stopped"),
        ({"annotations": ON}, {"service": "b", "ip": "2"}, "VirtualIP migration can not be stopped"),
        ({}, {"annotations": ON, "ip": "2"}, "not valid VirtualIP can not be migrated"),
        ({"state": "Error"}, {"annotations": ON}, "not valid VirtualIP can not be migrated"),
        ({"state": "Valid"}, {"annotations": ON}, None),
        (
            {"annotations": ON},
            {"annotations": ON, "service": "b"},
            "can not change service once migration has begun",
        ),
        ({"state": "Valid"}, {"annotations": ON, "service": "b"}, None),
        ({}, {"service": "b"}, None),
        ({}, {"ip": "2"}, ".spec.ip is immutable"),
    ],
)
def test_the_first_broken_rule_is_told(old: dict[str, Any], new: dict[str, Any], fault: str | None) -> None:
    assert virtual_ip_fault(_vip(**new), _vip(**old)) == fault


def _vip(service: str = "a", ip: str = "1", state: str = "", annotations: Any = None) -> dict[str, Any]:
    vip = built(kinds.VIRTUAL_IP, "vip", {"service": service, "ip": ip})
    vip["metadata"]["annotations"] = annotations or {}
    return {**vip, "status": {"state": state}}


def test_paths_and_names_are_upstreams() -> None:
    assert {(hook.name, hook.path, hook.failure_policy) for hook in webhooks()} == {
        ("vip.kb.io", "/validate-paas-org-v1-ip", "Fail"),
        ("vvirtualip.kb.io", "/validate-paas-org-v1-virtualip", "Fail"),
    }
