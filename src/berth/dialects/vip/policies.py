"""Who may write IP objects; that new VirtualIPs come from a restore only, and what of them stays."""

from __future__ import annotations

from collections.abc import Mapping

from berth.dialects.cel import BEFORE, SAID, Object, matching, pattern, text
from berth.dialects.vip import admit, kinds
from berth.dialects.vip.migrate import State
from berth.kube.resource import Resource


def policies(account: str) -> Mapping[str, Object]:
    return {"berth-vip-ips": _ip_writers(account), "berth-vip-virtualips": _virtual_ips()}


def _ip_writers(account: str) -> Object:
    """IP objects are the ledger: the operator's. A restore puts back a lease with its owner, and edits of it
    what is not ours."""
    ours = f"request.userInfo.username == {text(account)}"
    owner = text(kinds.OWNER)
    owned = f"{owner} in variables.said && variables.said[{owner}].matches({pattern('(?s)^[^/]*/.')})"
    left = " && ".join(map(_same_metadata, admit.LEASE_METADATA))
    restored = f"(request.operation == 'CREATE' && {owned}) || (request.operation == 'UPDATE' && {left})"
    told = (
        "'user ' + request.userInfo.username + ' cannot ' + request.operation.lowerAscii() + "
        f"{text(f' ip objects, only {account} is allowed')}"
    )
    validation = {
        "expression": f"{ours} || (({restored}) && {_may_restore(kinds.IP)})",
        "message": f"only {account} is allowed to write ip objects",
        "messageExpression": told,
        "reason": "Forbidden",
    }
    constraints = matching(kinds.GROUP, "v1", ["ips"], ["CREATE", "UPDATE", "DELETE"])
    return {"matchConstraints": constraints, "variables": [SAID], "validations": [validation]}


def _may_restore(resource: Resource) -> str:
    """By the group, or by RBAC: a ServiceAccount is in no group that one could choose."""
    member = f"(has(request.userInfo.groups) && {text(admit.RESTORERS)} in request.userInfo.groups)"
    asked = f"authorizer.group({text(resource.group)}).resource({text(resource.plural)})"
    return f"({member} || {asked}.check({text(admit.RESTORE)}).allowed())"


def _same_metadata(name: str) -> str:
    now, was = f"object.metadata.{name}", f"oldObject.metadata.{name}"
    return f"has({now}) == has({was}) && (!has({now}) || {now} == {was})"


def _virtual_ips() -> Object:
    """In the webhook's order: the first that is broken is told. A new one is a restored one, with its
    finalizer."""
    was, now = (f"{text(kinds.MIGRATE)} in variables.{place}" for place in ("before", "said"))
    new = "request.operation == 'CREATE'"
    held = f"has(object.metadata.finalizers) && {text(kinds.IP_FINALIZER)} in object.metadata.finalizers"
    state = "(has(oldObject.status) && has(oldObject.status.state) ? oldObject.status.state : '')"
    rules = {
        f"!({new}) || ({held} && {_may_restore(kinds.VIRTUAL_IP)})": admit.DEPRECATED,
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
