"""That the annotation `ipAddress` is an address."""

from __future__ import annotations

from collections.abc import Mapping

from berth.dialects.cel import ADDRESS, BEFORE, SAID, Object, cut, matching, pattern, text
from berth.dialects.metal3 import admit, kinds


def policies() -> Mapping[str, Object]:
    return {"berth-metal3-wanted-address": _wanted_address()}


def _wanted_address() -> Object:
    """A claim's may change, and is looked at then; an IPAddress is looked at when it is made."""
    key = text("ipAddress")
    asks = f"{key} in variables.said && variables.said[{key}] != ''"
    changes = f"!({key} in variables.before) || variables.before[{key}] != variables.said[{key}]"
    looked = f"(request.operation == 'CREATE' || (request.resource.resource == 'ipclaims' && ({changes})))"
    told = (
        f"{text('metadata.annotations.ipAddress: Invalid value: ')} + '\"' "
        f"+ {cut(f'variables.said[{key}]')} + '\"' + {text(f': {admit.NOT_AN_ADDRESS}')}"
    )
    validation = {
        "expression": f"!({asks}) || !{looked} || variables.said[{key}].matches({pattern(ADDRESS)})",
        "message": f"metadata.annotations.ipAddress: {admit.NOT_AN_ADDRESS}",
        "messageExpression": told,
        "reason": "Invalid",
    }
    plurals = ["ipclaims", "ipaddresses"]
    return {
        "matchConstraints": matching(kinds.GROUP, "v1alpha1", plurals, ["CREATE", "UPDATE"]),
        "matchConditions": [admit.ANNOTATED],
        "variables": [SAID, BEFORE],
        "validations": [validation],
    }
