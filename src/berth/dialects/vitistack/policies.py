"""Annotations of Services that no operator would take: family, addresses, retention and the like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from berth.dialects.cel import BEFORE, HOST, HOSTS, NUMBER, SAID, Object, cut, listed, matching, pattern, text
from berth.dialects.vitistack import admit, kinds, messages
from berth.dialects.vitistack.service_annotations import FALSE, MOST_DAYS, TRUE, Families
from berth.dialects.vitistack.settings import VitistackSettings


def policies(settings: VitistackSettings) -> Mapping[str, Object]:
    return {"berth-vitistack-services": _services(settings)}


def _services(settings: VitistackSettings) -> Object:
    """The Services that the webhooks are asked about, and of their annotations those that are new or another
    than before. An IPv4-mapped address passes here, and is the webhooks' to refuse.
    """
    webhook = admit.webhooks(settings)[1]
    constraints = {
        **matching("", "v1", ["services"], ["CREATE", "UPDATE"]),
        "namespaceSelector": dict(webhook.namespace_selector),
    }
    going = [one for one in webhook.match_conditions if one["name"] != "load-balancer"]
    return {
        "matchConstraints": constraints,
        "matchConditions": [_served(settings.classes), *going],
        "variables": [SAID, BEFORE],
        "validations": [
            _says(kinds.FAMILY, f"in {listed(Families)}", _family_told()),
            _says(kinds.ADDRESSES, f".matches({pattern(HOSTS)})", _about("invalid_address")),
            _says(kinds.ZONE, "!= ''", _empty_told(kinds.ZONE, "a zone")),
            _says(kinds.SECRET_NAME, "!= ''", _empty_told(kinds.SECRET_NAME, "a Secret")),
            _says(kinds.RETENTION, f".matches({pattern(NUMBER)})", text(messages.BAD_RETENTION)),
            _days(f"<= {MOST_DAYS}", messages.RETENTION_OVER),
            _days(">= 0", messages.RETENTION_UNDER),
            _says(kinds.DENY, f"in {listed(sorted(TRUE | FALSE))}", _about("bad_deny")),
        ],
    }


def _served(classes: Sequence[str]) -> Object:
    """As one text, which the chart can fill in; '' is a Service without a class."""
    load_class = "(has(object.spec.loadBalancerClass) ? object.spec.loadBalancerClass : '')"
    ours = f"{load_class} in {text(','.join(classes))}.split(',')"
    return {
        "name": "load-balancer",
        "expression": f"has(object.spec.type) && object.spec.type == 'LoadBalancer' && {ours}",
    }


def _says(key: str, condition: str, told: str) -> Object:
    """A rule on an annotation, where it is set and not as it was."""
    value = f"variables.said[{text(key)}]"
    apart = "" if condition.startswith(".") else " "
    return {
        "expression": f"{_unchanged(key)} || {value}{apart}{condition}",
        "message": f"annotation {key} has a value that is not allowed",
        "messageExpression": told,
        "reason": "Forbidden",
    }


def _unchanged(key: str) -> str:
    name = text(key)
    same = f"{name} in variables.before && variables.before[{name}] == variables.said[{name}]"
    return f"!({name} in variables.said) || ({same})"


def _days(condition: str, told: str) -> Object:
    value = f"variables.said[{text(kinds.RETENTION)}]"
    number = f"!{value}.matches({pattern(NUMBER)}) || int({value}) {condition}"
    expression = f"{_unchanged(kinds.RETENTION)} || {number}"
    return {"expression": expression, "message": told, "reason": "Forbidden"}


def _family_told() -> str:
    before, _, after = messages.unknown_family("\0").partition("\0")
    return f"{text(before)} + {cut(f'variables.said[{text(kinds.FAMILY)}]')} + {text(after)}"


def _about(which: str) -> str:
    """The webhook's sentence, with the Service's name and, for an address, the first that is none."""
    if which == "bad_deny":
        before, _, after = messages.bad_deny("\0").partition("\0")
        return _sentence(before, "object.metadata.name", after)
    before, _, after = messages.invalid_address("\0", "").partition("\0")
    parts = f"variables.said[{text(kinds.ADDRESSES)}].split(',')"
    wrong = cut(f"{parts}.filter(part, !part.matches({pattern(f'^{HOST}$')}))[0].trim()")
    return _sentence(before, "object.metadata.name", f"{after}") + f" + {wrong}"


def _sentence(before: str, middle: str, after: str) -> str:
    return f"{text(before)} + {middle}" + (f" + {text(after)}" if after else "")


def _empty_told(key: str, what: str) -> str:
    before, after = f"annotation {key} of Service ", f" is empty: name {what}, or leave it out"
    return _sentence(before, "object.metadata.name", after)
