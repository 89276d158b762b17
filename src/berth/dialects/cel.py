"""The words of ValidatingAdmissionPolicies: what CEL can say of the webhooks' rules holds with no operator.

The webhooks say the same in the same words, and more: what CEL cannot say exactly is left to them, so nothing
is refused there that they would take. CRDs have rules of their own, for what is inside one object. No
expression needs more than Kubernetes 1.30, which takes CEL's libraries of 1.29: hence patterns, not isIP().
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from berth.control.review import LONGEST_ECHO

Object = dict[str, Any]

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


def matching(group: str, version: str, plurals: Sequence[str], operations: Sequence[str]) -> Object:
    rule = {"apiGroups": [group], "apiVersions": [version], "resources": list(plurals)}
    return {"resourceRules": [{**rule, "operations": list(operations)}]}


def text(value: str) -> str:
    """A CEL string."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def cut(value: str) -> str:
    cut = f"text.size() > {LONGEST_ECHO} ? text.substring(0, {LONGEST_ECHO}) + '...' : text"
    return f"[{value}].map(text, {cut})[0]"


def pattern(value: str) -> str:
    """A raw CEL string: a pattern's backslashes are its own."""
    return f"r'{value}'"


def listed(texts: Iterable[object]) -> str:
    return f"[{', '.join(text(str(one)) for one in texts)}]"
