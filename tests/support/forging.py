"""Reviews that nobody asked the API server for, about Services: as a pod sends them that reaches the port."""

from __future__ import annotations

import uuid
from io import BytesIO
from typing import Any, NamedTuple

import aiohttp
import orjson

from berth.dialects.vitistack import kinds
from berth.kube import meta

Object = dict[str, Any]
PATHS = (kinds.MUTATE_PATH, kinds.VALIDATE_PATH)


class Said(NamedTuple):
    """What came back: the status of HTTP, and the webhook's own."""

    status: int
    allowed: bool
    code: int
    text: str


class Forger:
    """Sends whatever it likes to a webhook, and says that an administrator asked for it."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def send(self, path: str, body: bytes) -> Said:
        async with self._session.post(self._url + path, data=BytesIO(body)) as response:
            text = await response.text()
        answer = orjson.loads(text)["response"] if response.status == 200 else {}
        code = (answer.get("status") or {}).get("code", response.status)
        return Said(response.status, bool(answer.get("allowed")), code, text)

    async def ask(self, path: str, **request: Any) -> Said:
        return await self.send(path, review(**request))


def review(**request: Any) -> bytes:
    """A complete one about a Service; the name and namespace are the object's if nothing else is said."""
    about = request["object"]["metadata"]
    full = {
        "uid": str(uuid.uuid4()),
        "kind": {"group": "", "version": "v1", "kind": "Service"},
        "resource": {"group": "", "version": "v1", "resource": "services"},
        "namespace": about.get("namespace"),
        "name": about.get("name"),
        "operation": "CREATE",
        "userInfo": {"username": "admin", "groups": ["system:masters"]},
        "oldObject": None,
        "dryRun": False,
        **request,
    }
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": full})


def edited(obj: Object, metadata: Object | None = None, **changes: str) -> Object:
    """With other annotations of ours, and whatever of the metadata."""
    keys = {kinds.PREFIX + key.replace("_", "-"): value for key, value in changes.items()}
    about = {**obj["metadata"], **(metadata or {})}
    return {**obj, "metadata": {**about, "annotations": {**meta.annotations(obj), **keys}}}
