"""How `berth up` shows IPAMRequests."""

from __future__ import annotations

from berth.dialects.examples import ExampleRow, Examples, ExampleTable, Object, row
from berth.dialects.kubipam.kinds import REQUEST


def _request(request: Object) -> ExampleRow:
    status = request.get("status") or {}
    given = status.get("cidr") or " ".join(filter(None, (status.get("state"), status.get("message"))))
    return row(request, f"IPAMRange {request['spec']['ipam']['name']}", given)


EXAMPLES = Examples(
    tables=(ExampleTable("kubipam", REQUEST, _request),), plurals=("ipamranges", "ipamrequests")
)
