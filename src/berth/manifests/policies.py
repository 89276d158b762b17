"""ValidatingAdmissionPolicies: what CEL can say of the webhooks' rules, so that it holds with no operator.

vip          who may write IP objects; that new VirtualIPs come from a restore only, and what of them stays
metal3       that the annotation `ipAddress` is an address
vitistack    annotations of Services that no operator would take: family, addresses, retention and the like

The webhooks say the same in the same words, and more: what CEL cannot say exactly is left to them, so nothing
is refused here that they would take. CRDs have rules of their own, for what is inside one object. No
expression needs more than Kubernetes 1.30, which takes CEL's libraries of 1.29: hence patterns, not isIP().
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from berth.control.review import LONGEST_ECHO
from berth.dialects.metal3 import admit as metal3_admit
from berth.dialects.metal3 import kinds as metal3
from berth.dialects.vip import admit as vip_admit
from berth.dialects.vip import kinds as vip
from berth.dialects.vip.migrate import State
from berth.dialects.vitistack import admit as vitistack_admit
from berth.dialects.vitistack import kinds as vitistack
from berth.dialects.vitistack import messages
from berth.dialects.vitistack.service_annotations import FALSE, MOST_DAYS, TRUE, Families
from berth.kube.resource import Resource
from berth.manifests.options import OPERATOR, Object, Options
from berth.settings import Settings

API_VERSION = "admissionregistration.k8s.io/v1"

OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4 = rf"(({OCTET}\.){{3}}{OCTET})"
GROUP = "[0-9A-Fa-f]{1,4}"
# Eight groups; or a gap, with at most seven around it; and both with an IPv4 address for the last two groups.
IPV6 = "|".join(
    (
        f"({GROUP}:){{7}}{GROUP}",
        f":(:{GROUP}){{1,7}}",
        f"({GROUP}:){{1,7}}:",
        *(f"({GROUP}:){{{before}}}(:{GROUP}){{1,{7 - before}}}" for before in range(1, 7)),
        "::",
        f"({GROUP}:){{6}}{IPV4}",
        f"::({GROUP}:){{0,5}}{IPV4}",
        *(f"({GROUP}:){{{before}}}:({GROUP}:){{0,{5 - before}}}{IPV4}" for before in range(1, 6)),
    )
)
ADDRESS = f"^({IPV4}|{IPV6})$"
BLANKS = r"[\s\v\x1c-\x1f\x85\pZ]*"  # what Python calls blank
HOST = f"{BLANKS}({IPV4}(/32)?|({IPV6})(/128)?){BLANKS}"
HOSTS = f"^({BLANKS}|{HOST}(,{HOST})*)$"
NUMBER = "^[+-]?[0-9]{1,9}$"

SAID = {
    "name": "said",
    "expression": "object != null && has(object.metadata.annotations) ? object.metadata.annotations : {}",
}
BEFORE = {
    "name": "before",
    "expression": "oldObject != null && has(oldObject.metadata.annotations) ? "
    "oldObject.metadata.annotations : {}",
}


def policies(options: Options) -> list[Object]:
    """Each with its binding; of the chosen dialects."""
    return [obj for dialect in options.chosen() for obj in policies_of(dialect.name, options)]


def policies_of(dialect: str, options: Options, settings: Settings | None = None) -> list[Object]:
    settings = settings or Settings()
    match dialect:
        case "metal3":
            return [*_bound(options, "berth-metal3-wanted-address", _wanted_address())]
        case "vip":
            account = f"system:serviceaccount:{options.namespace}:{OPERATOR}"
            return [
                *_bound(options, "berth-vip-ips", _ip_writers(account)),
                *_bound(options, "berth-vip-virtualips", _virtual_ips()),
            ]
        case "vitistack":
            return [*_bound(options, "berth-vitistack-services", _services(settings))]
        case _:
            return []  # kubipam: its CRDs say all there is to say


def _bound(options: Options, name: str, spec: Object) -> tuple[Object, Object]:
    """Without a binding a policy has no effect; without parameters there is one for the whole cluster."""
    about = {"name": name, "labels": options.labels(OPERATOR)}
    head = {"apiVersion": API_VERSION, "metadata": about}
    policy = {**head, "kind": "ValidatingAdmissionPolicy", "spec": {"failurePolicy": "Fail", **spec}}
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return policy, {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding}


def _matching(group: str, version: str, plurals: Sequence[str], operations: Sequence[str]) -> Object:
    rule = {"apiGroups": [group], "apiVersions": [version], "resources": list(plurals)}
    return {"resourceRules": [{**rule, "operations": list(operations)}]}


def _text(value: str) -> str:
    """A CEL string."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _cut(value: str) -> str:
    cut = f"text.size() > {LONGEST_ECHO} ? text.substring(0, {LONGEST_ECHO}) + '...' : text"
    return f"[{value}].map(text, {cut})[0]"


def _pattern(value: str) -> str:
    """A raw CEL string: a pattern's backslashes are its own."""
    return f"r'{value}'"


# vip


def _ip_writers(account: str) -> Object:
    """IP objects are the ledger: the operator's. A restore puts back a lease with its owner, and edits of it
    what is not ours."""
    ours = f"request.userInfo.username == {_text(account)}"
    owner = _text(vip.OWNER)
    owned = f"{owner} in variables.said && variables.said[{owner}].matches({_pattern('(?s)^[^/]*/.')})"
    left = " && ".join(map(_same_metadata, vip_admit.LEASE_METADATA))
    restored = f"(request.operation == 'CREATE' && {owned}) || (request.operation == 'UPDATE' && {left})"
    told = (
        "'user ' + request.userInfo.username + ' cannot ' + request.operation.lowerAscii() + "
        f"{_text(f' ip objects, only {account} is allowed')}"
    )
    validation = {
        "expression": f"{ours} || (({restored}) && {_may_restore(vip.IP)})",
        "message": f"only {account} is allowed to write ip objects",
        "messageExpression": told,
        "reason": "Forbidden",
    }
    constraints = _matching(vip.GROUP, "v1", ["ips"], ["CREATE", "UPDATE", "DELETE"])
    return {"matchConstraints": constraints, "variables": [SAID], "validations": [validation]}


def _may_restore(resource: Resource) -> str:
    """By the group, or by RBAC: a ServiceAccount is in no group that one could choose."""
    member = f"(has(request.userInfo.groups) && {_text(vip_admit.RESTORERS)} in request.userInfo.groups)"
    asked = f"authorizer.group({_text(resource.group)}).resource({_text(resource.plural)})"
    return f"({member} || {asked}.check({_text(vip_admit.RESTORE)}).allowed())"


def _same_metadata(name: str) -> str:
    now, was = f"object.metadata.{name}", f"oldObject.metadata.{name}"
    return f"has({now}) == has({was}) && (!has({now}) || {now} == {was})"


def _virtual_ips() -> Object:
    """In the webhook's order: the first that is broken is told. A new one is a restored one, with its
    finalizer."""
    was, now = (f"{_text(vip.MIGRATE)} in variables.{place}" for place in ("before", "said"))
    new = "request.operation == 'CREATE'"
    held = f"has(object.metadata.finalizers) && {_text(vip.IP_FINALIZER)} in object.metadata.finalizers"
    state = "(has(oldObject.status) && has(oldObject.status.state) ? oldObject.status.state : '')"
    rules = {
        f"!({new}) || ({held} && {_may_restore(vip.VIRTUAL_IP)})": vip_admit.DEPRECATED,
        f"{new} || !({was}) || {now}": vip_admit.NOT_STOPPED,
        f"{new} || {was} || !({now}) || {state} == {_text(State.VALID)}": vip_admit.NOT_VALID,
        f"{new} || !({was}) || {_same_field('service')}": vip_admit.SERVICE_FIXED,
        f"{new} || {_field('object', 'ip')} == {_field('oldObject', 'ip')}": vip_admit.IP_FIXED,
    }
    return {
        "matchConstraints": _matching(vip.GROUP, "v1", ["virtualips"], ["CREATE", "UPDATE"]),
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


# metal3


def _wanted_address() -> Object:
    """A claim's may change, and is looked at then; an IPAddress is looked at when it is made."""
    key = _text("ipAddress")
    asks = f"{key} in variables.said && variables.said[{key}] != ''"
    changes = f"!({key} in variables.before) || variables.before[{key}] != variables.said[{key}]"
    looked = f"(request.operation == 'CREATE' || (request.resource.resource == 'ipclaims' && ({changes})))"
    told = (
        f"{_text('metadata.annotations.ipAddress: Invalid value: ')} + '\"' "
        f"+ {_cut(f'variables.said[{key}]')} + '\"' + {_text(f': {metal3_admit.NOT_AN_ADDRESS}')}"
    )
    validation = {
        "expression": f"!({asks}) || !{looked} || variables.said[{key}].matches({_pattern(ADDRESS)})",
        "message": f"metadata.annotations.ipAddress: {metal3_admit.NOT_AN_ADDRESS}",
        "messageExpression": told,
        "reason": "Invalid",
    }
    kinds = ["ipclaims", "ipaddresses"]
    return {
        "matchConstraints": _matching(metal3.GROUP, "v1alpha1", kinds, ["CREATE", "UPDATE"]),
        "matchConditions": [metal3_admit.ANNOTATED],
        "variables": [SAID, BEFORE],
        "validations": [validation],
    }


# vitistack


def _services(settings: Settings) -> Object:
    """The Services that the webhooks are asked about, and of their annotations those that are new or another
    than before. An IPv4-mapped address passes here, and is the webhooks' to refuse.
    """
    webhook = vitistack_admit.webhooks(settings)[1]
    constraints = {
        **_matching("", "v1", ["services"], ["CREATE", "UPDATE"]),
        "namespaceSelector": dict(webhook.namespace_selector),
    }
    going = [one for one in webhook.match_conditions if one["name"] != "load-balancer"]
    return {
        "matchConstraints": constraints,
        "matchConditions": [_served(settings.vitistack_classes), *going],
        "variables": [SAID, BEFORE],
        "validations": [
            _says(vitistack.FAMILY, f"in {_listed(Families)}", _family_told()),
            _says(vitistack.ADDRESSES, f".matches({_pattern(HOSTS)})", _about("invalid_address")),
            _says(vitistack.ZONE, "!= ''", _empty_told(vitistack.ZONE, "a zone")),
            _says(vitistack.SECRET_NAME, "!= ''", _empty_told(vitistack.SECRET_NAME, "a Secret")),
            _says(vitistack.RETENTION, f".matches({_pattern(NUMBER)})", _text(messages.BAD_RETENTION)),
            _days(f"<= {MOST_DAYS}", messages.RETENTION_OVER),
            _days(">= 0", messages.RETENTION_UNDER),
            _says(vitistack.DENY, f"in {_listed(sorted(TRUE | FALSE))}", _about("bad_deny")),
        ],
    }


def _served(classes: Sequence[str]) -> Object:
    """As one text, which the chart can fill in; '' is a Service without a class."""
    load_class = "(has(object.spec.loadBalancerClass) ? object.spec.loadBalancerClass : '')"
    ours = f"{load_class} in {_text(','.join(classes))}.split(',')"
    return {
        "name": "load-balancer",
        "expression": f"has(object.spec.type) && object.spec.type == 'LoadBalancer' && {ours}",
    }


def _says(key: str, condition: str, told: str) -> Object:
    """A rule on an annotation, where it is set and not as it was."""
    value = f"variables.said[{_text(key)}]"
    apart = "" if condition.startswith(".") else " "
    return {
        "expression": f"{_unchanged(key)} || {value}{apart}{condition}",
        "message": f"annotation {key} has a value that is not allowed",
        "messageExpression": told,
        "reason": "Forbidden",
    }


def _unchanged(key: str) -> str:
    name = _text(key)
    same = f"{name} in variables.before && variables.before[{name}] == variables.said[{name}]"
    return f"!({name} in variables.said) || ({same})"


def _days(condition: str, text: str) -> Object:
    value = f"variables.said[{_text(vitistack.RETENTION)}]"
    number = f"!{value}.matches({_pattern(NUMBER)}) || int({value}) {condition}"
    expression = f"{_unchanged(vitistack.RETENTION)} || {number}"
    return {"expression": expression, "message": text, "reason": "Forbidden"}


def _listed(texts: Any) -> str:
    return f"[{', '.join(_text(str(one)) for one in texts)}]"


def _family_told() -> str:
    before, _, after = messages.unknown_family("\0").partition("\0")
    return f"{_text(before)} + {_cut(f'variables.said[{_text(vitistack.FAMILY)}]')} + {_text(after)}"


def _about(which: str) -> str:
    """The webhook's sentence, with the Service's name and, for an address, the first that is none."""
    if which == "bad_deny":
        before, _, after = messages.bad_deny("\0").partition("\0")
        return _sentence(before, "object.metadata.name", after)
    before, _, after = messages.invalid_address("\0", "").partition("\0")
    parts = f"variables.said[{_text(vitistack.ADDRESSES)}].split(',')"
    wrong = _cut(f"{parts}.filter(part, !part.matches({_pattern(f'^{HOST}$')}))[0].trim()")
    return _sentence(before, "object.metadata.name", f"{after}") + f" + {wrong}"


def _sentence(before: str, middle: str, after: str) -> str:
    return f"{_text(before)} + {middle}" + (f" + {_text(after)}" if after else "")


def _empty_told(key: str, what: str) -> str:
    before, after = f"annotation {key} of Service ", f" is empty: name {what}, or leave it out"
    return _sentence(before, "object.metadata.name", after)


def chart_policies(dialect: str, namespace: str, classes: str) -> list[Object]:
    """For the chart, which fills in both words."""
    settings = replace(Settings(), vitistack_classes=(classes,))
    return policies_of(dialect, Options(namespace=namespace), settings)
