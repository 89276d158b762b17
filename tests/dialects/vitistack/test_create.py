"""Creating Services: rows V-001 to V-045."""

from __future__ import annotations

import asyncio
import base64

import pytest
from tests.support import metallb
from tests.support.operator import eventually
from tests.support.vitistack import SYSTEM, VALUE, World, address_of, of, service

from berth.dialects.vitistack import kinds
from berth.errors import Invalid, NotFound
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


async def test_a_plain_service_gets_all_annotations_and_an_address(world: World) -> None:
    """V-001, V-002, V-003, V-114: nothing but ports and a type is asked for."""
    made = await world.create()
    keys = {key for key in meta.annotations(made) if key.startswith(kinds.PREFIX)}
    assert keys == {
        kinds.ADDRESSES, kinds.SHARING_KEY, kinds.DENY, kinds.FAMILY, kinds.RETENTION, kinds.SECRET_NAME,
        kinds.ZONE,
    }  # fmt: skip
    assert of(made, "ip-family") == "ipv4"
    assert of(made, "retention-period-days") == "0"
    assert of(made, "deny-external-cleanup") == "false"
    assert of(made, "secret") == "default"
    assert of(made, "zone") == "inet"
    assert of(made, "allow-local-shared-ip").startswith("pre-shared-key-")
    address = address_of(made)
    assert address.endswith("/32")
    annotations = meta.annotations(made)
    assert annotations[kinds.METALLB_POOL] == "inet"
    assert annotations[kinds.METALLB_ADDRESSES] == address.partition("/")[0]
    assert annotations[kinds.METALLB_KEY] == of(made, "allow-local-shared-ip")
    assert made["spec"]["ipFamilyPolicy"] == "SingleStack"
    assert world.api.entries(address)["my-service"].active
    pool = await world.client.get(kinds.POOL, "inet", metallb.NAMESPACE)
    assert pool["spec"]["autoAssign"] is False
    assert address in pool["spec"]["addresses"]
    assert not meta.finalizers(await world.get())

    async def is_assigned() -> bool:
        shown = (await world.get())["status"]["loadBalancer"].get("ingress") or []
        return [one["ip"] for one in shown] == [address.partition("/")[0]]

    assert await eventually(is_assigned)
