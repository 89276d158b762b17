"""Whether MetalLB's controller is up: a ready Pod with one of the two sets of labels it is installed with."""

from __future__ import annotations

from typing import Any

from berth.control.batching import Tasks
from berth.control.shared_read import SharedRead
from berth.dialects.vitistack import kinds
from berth.kube import meta
from berth.kube.client import Client

Object = dict[str, Any]


class MetalLb:
    def __init__(self, client: Client, namespace: str, selectors: tuple[str, ...], tasks: Tasks) -> None:
        self._client = client
        self._namespace = namespace
        self._selectors = selectors
        self._ready = SharedRead(self._look, tasks)  # a yes only

    async def is_up(self) -> bool:
        return not self._namespace or bool(await self._ready.get())

    async def _look(self) -> bool | None:
        for selector in self._selectors:
            pods = await self._client.list(kinds.POD, self._namespace, label_selector=selector)
            if any(_is_ready(pod) for pod in pods.items):
                return True
        return None


def _is_ready(pod: Object) -> bool:
    running = (pod.get("status") or {}).get("phase") == "Running"
    return running and meta.is_true(pod, "Ready") and not meta.is_deleting(pod)
