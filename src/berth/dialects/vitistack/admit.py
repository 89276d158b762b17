"""Which reviews we are sent, and the frame both webhooks answer in: in time, in words, never with an effect
before the caches are filled.

Only LoadBalancer Services of our classes reach us, before or after the change, and none that is being
deleted: no deletion waits for us, the IPAM-API or MetalLB. There is no webhook for DELETE. Nor does a dry run
reach us, our own least of all: it would be admitted as it is, which the API server can do without asking.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from berth.control.admission import Handler
from berth.control.batching import LoadGauge
from berth.control.review import Answer, Review
from berth.control.webhooks import Webhook, rule
from berth.dialects.dialect import Dependencies
from berth.dialects.vitistack import kinds
from berth.dialects.vitistack.messages import No
from berth.dialects.vitistack.settings import VitistackSettings
from berth.dialects.vitistack.stored import Stored

Object = dict[str, Any]
TIMEOUT_SECONDS = 30  # the document's; our own answer comes long before
EARLY_SECONDS = 0.5


def webhooks(settings: VitistackSettings) -> tuple[Webhook, Webhook]:
    """Mutating, validating."""
    return (
        _webhook("mservice-v1.kb.io", kinds.MUTATE_PATH, settings, mutating=True),
        _webhook("vservice-v1.kb.io", kinds.VALIDATE_PATH, settings, mutating=False),
    )


def _webhook(name: str, path: str, settings: VitistackSettings, *, mutating: bool) -> Webhook:
    excluded = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": list(settings.excluded),
    }
    return Webhook(
        name,
        path,
        (rule("", "v1", ["services"], ["CREATE", "UPDATE"]),),
        mutating=mutating,
        side_effects="NoneOnDryRun",
        timeout_seconds=TIMEOUT_SECONDS,
        match_conditions=_conditions(settings.classes),
        namespace_selector={"matchExpressions": [excluded]},
    )


def _conditions(classes: tuple[str, ...]) -> tuple[Object, ...]:
    """One of the two objects is null on CREATE."""
    served = ", ".join("'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'" for name in classes)

    def ours(obj: str) -> str:
        load_balancer = f"has({obj}.spec.type) && {obj}.spec.type == 'LoadBalancer'"
        load_class = f"(has({obj}.spec.loadBalancerClass) ? {obj}.spec.loadBalancerClass : '')"
        return f"({obj} != null && {load_balancer} && {load_class} in [{served}])"

    return (
        {"name": "load-balancer", "expression": f"{ours('object')} || {ours('oldObject')}"},
        {
            "name": "not-being-deleted",
            "expression": "object == null || !has(object.metadata.deletionTimestamp)",
        },
        {"name": "not-a-dry-run", "expression": "!(has(request.dryRun) && request.dryRun)"},
    )


def plans(settings: VitistackSettings) -> Mapping[str, tuple[Webhook, ...]]:
    mutating, validating = webhooks(settings)
    return {kinds.MUTATING_CONFIGURATION: (mutating,), kinds.VALIDATING_CONFIGURATION: (validating,)}


class Frame:
    """Around a handler: waits for the caches, keeps the deadline, turns a No into an answer and an Event."""

    def __init__(
        self, ready: Callable[[], Awaitable[None]], kit: Dependencies, load: LoadGauge, stored: Stored
    ) -> None:
        seconds = kit.settings.webhook_deadline_seconds
        self._ready = ready
        self._seconds = max(seconds - EARLY_SECONDS, seconds / 2)
        self._pending_seconds = kit.settings.of(VitistackSettings).pending_seconds
        self._events = kit.events
        self._metrics = kit.metrics
        self._load = load
        self._stored = stored

    def around(self, handler: Handler) -> Handler:
        async def answered(review: Review) -> Answer:
            try:
                async with asyncio.timeout(self._seconds):
                    await self._ready()
                    with self._load.one_more():
                        return await handler(review)
            except No as no:
                return self._refused(review, no)
            except TimeoutError:
                text = (
                    f"no answer within {self._seconds:g} s; try again, or what was begun is undone "
                    f"within {self._pending_seconds:g} s"
                )
                return self._refused(review, No(text, code=504, reason="Timeout"))

        return answered

    def _refused(self, review: Review, no: No) -> Answer:
        self._metrics.decided("vitistack", "refusal", no.reason)
        # An Event needs an object that is there; of a conflict the API server asks again by itself.
        if review.old_object and not review.dry_run and no.code != 409 and self._stored.is_there(review):
            about = {"apiVersion": "v1", "kind": "Service", **review.old_object}
            self._events.event(about, "Warning", "AddressRefused", no.message)
        return no.answer()
