"""Reviews whose objects are never stored, and what comes after them."""

from __future__ import annotations

import uuid
from typing import Any

import aiohttp
import pytest
from tests.support.killing import serves
from tests.support.operator import Operator, eventually
from tests.support.vitistack import World, address_of, operating

from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]
Object = dict[str, Any]


async def reviewed(operator: Operator, old: Object, **changes: str) -> bool:
    """Whether our validating webhook admits an update, about which nobody but us is asked."""
    keys = {kinds.PREFIX + key.replace("_", "-"): value for key, value in changes.items()}
    about = {**old["metadata"], "annotations": {**meta.annotations(old), **keys}}
    request = {
        "uid": str(uuid.uuid4()),
        "kind": {"group": "", "version": "v1", "kind": "Service"},
        "resource": {"group": "", "version": "v1", "resource": "services"},
        "namespace": about["namespace"],
        "name": about["name"],
        "operation": "UPDATE",
        "userInfo": {"username": "admin", "groups": ["system:masters"]},
        "object": {**old, "metadata": about},
        "oldObject": old,
        "dryRun": False,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    url = operator.settings.webhook_url + kinds.VALIDATE_PATH
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
        session.post(url, json=review) as response,
    ):
        return bool((await response.json())["response"]["allowed"])


async def test_an_update_after_a_rotation_that_was_not_stored_keeps_the_stored_secret(
    cluster: DevCluster, bare: World
) -> None:
    """T26: the live object counts, whatever the record says meanwhile."""
    async with operating(cluster, bare.api, vitistack_pending_seconds=120.0) as operator:
        await serves(bare)
        await bare.secret()
        made = await bare.create()
        assert await reviewed(operator, made, secret="my-secret")
        await bare.annotate(deny_external_cleanup="true")

        async def is_finished() -> bool:
            mine = [one["data"] for one in await bare.records() if one["data"]["service"] == "my-service"]
            return [one.get("replaced") for one in mine] == [None]

        assert await eventually(is_finished, 60)
        assert await bare.opens(address_of(made), await bare.default_secret())
        await bare.delete()

        async def is_free() -> bool:
            return not bare.api.of_namespace(bare.namespace_id)

        assert await eventually(is_free, 60)
