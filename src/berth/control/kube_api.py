"""What the edge of this column asks of the API server: the few verbs of `kube.client.Client` it uses.

The elector, the shared certificate, the webhook registration and the Event recorder are given anything that
has these verbs, so that their tests can run on fake time with a scripted server.
"""

from __future__ import annotations

from typing import Any, Protocol

from berth.kube.resource import Resource

Object = dict[str, Any]


class Api(Protocol):
    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object: ...

    async def create(self, resource: Resource, obj: Object, namespace: str = "") -> Object: ...

    async def replace(self, resource: Resource, obj: Object) -> Object: ...

    async def patch(self, resource: Resource, name: str, body: Object, namespace: str = "") -> Object: ...

    async def delete(
        self, resource: Resource, name: str, namespace: str = "", *, uid: str = "", resource_version: str = ""
    ) -> Object | None: ...
