"""Who may write IP objects; that VirtualIPs are not made any more, and what of them stays."""

from __future__ import annotations

from collections.abc import Mapping

from berth.dialects.cel import BEFORE, SAID, Object, matching, text
from berth.dialects.vip import admit, kinds
from berth.dialects.vip.migrate import State

RESTORERS = "berth:restorers"  # the group whose members may put IP objects back from a backup


def policies(account: str) -> Mapping[str, Object]:
    return {"berth-vip-ips": _ip_writers(account), "berth-vip-virtualips": _virtual_ips()}


def _ip_writers(account: str) -> Object:
    """IP objects are the ledger: the operator's, and a restore may put back what a backup has."""
    ours = f"request.userInfo.username == {text(account)}"
    restoring = (
        "request.operation == 'CREATE' && has(request.userInfo.groups) && "
        f"{text(RESTORERS)} in request.userInfo.groups"
    )
    told = (
        "'user ' + request.userInfo.username + ' cannot ' + request.operation.lowerAscii() + "
        f"{text(f' ip objects, only {account} is allowed')}"
    )
    validation = {
        "expression": f"{ours} || ({restoring})",
        "message": f"only {account} is allowed to write ip objects",
        "messageExpression": told,
        "reason": "Forbidden",
    }
    constraints = matching(kinds.GROUP, "v1", ["ips"], ["CREATE", "UPDATE", "DELETE"])
    return {"matchConstraints": constraints, "validations": [validation]}


def _virtual_ips() -> Object:
    """In the webhook's order: the first that is broken is told."""
    was, now = (f"{text(kinds.MIGRATE)} in variables.{place}" for place in ("before", "said"))
    new = "request.operation == 'CREATE'"
    state = "(has(oldObject.status) && has(oldObject.status.state) ? oldObject.status.state : '')"
    rules = {
        f"!({new})": admit.DEPRECATED,
        f"{new} || !({was}) || {now}": admit.NOT_STOPPED,
        f"{new} || {was} || !({now}) || {state} == {text(State.VALID)}": admit.NOT_VALID,
        f"{new} || !({was}) || {_same_field('service')}": admit.SERVICE_FIXED,
        f"{new} || {_field('object', 'ip')} == {_field('oldObject', 'ip')}": admit.IP_FIXED,
    }
    return {
        "matchConstraints": matching(kinds.GROUP, "v1", ["virtualips"], ["CREATE", "UPDATE"]),
        "variables": [SAID, BEFORE],
        "validations": [
            {"expression": expression, "message": text, "reason": "Forbidden"}
            for expression, text in rules.items()
        ],
    }


def _field(obj: str, name: str) -> str:
    return f"(has({obj}.spec) && has({obj}.spec.{name}) ? {obj}.spec.{name} : '')"


def _same_field(name: str) -> str:
    there = [f"(has({obj}.spec) && has({obj}.spec.{name}))" for obj in ("object", "oldObject")]
    same = f"object.spec.{name} == oldObject.spec.{name}"
    return f"({there[0]} == {there[1]} && (!{there[0]} || {same}))"
