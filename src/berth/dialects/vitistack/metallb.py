"""Whether MetalLB's controller is up: a ready Pod with one of the two sets of labels it is installed with."""

from __future__ import annotations

import time
from typing import Any

from berth.dialects.vitistack import kinds
from berth.kube import meta
from berth.kube.client import Client

Object = dict[str, Any]
FRESH_SECONDS = 2.0


class MetalLb:
    def __init__(self, client: Client, namespace: str, selectors: tuple[str, ...]) -> None:
        self._client = client
        self._namespace = namespace
        self._selectors = selectors
        self._seen_at = float("-inf")

    async def is_up(self) -> bool:
        """A yes holds for a moment, so that a flood of Services does not list Pods for each."""
        if not self._namespace or time.monotonic() - self._seen_at < FRESH_SECONDS:
            return True
        for selector in self._selectors:
            pods = await self._client.list(kinds.POD, self._namespace, label_selector=selector)
            if any(_is_ready(pod) for pod in pods.items):
                self._seen_at = time.monotonic()
                return True
        return False


def _is_ready(pod: Object) -> bool:
    running = (pod.get("status") or {}).get("phase") == "Running"
    return running and meta.is_true(pod, "Ready") and not meta.is_deleting(pod)
