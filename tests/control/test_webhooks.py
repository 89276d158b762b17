"""webhooks: registered once, kept in step with the certificate, taken away only where they are ours."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.support.fake_api import FakeApi, Link
from tests.support.virtual import now, run

from berth.control.webhooks import MUTATING, VALIDATING, Plan, Registration, Service, Url, Webhook, rule
from berth.errors import NotFound

BOXES = rule("example.org", "v1", ["boxes"], ["CREATE", "UPDATE"])
MUTATE = Webhook("default.boxes.example.org", "/mutate", (BOXES,), mutating=True, failure_policy="Ignore")
VALIDATE = Webhook(
    "validate.boxes.example.org",
    "/validate",
    (BOXES,),
    match_conditions=({"name": "big", "expression": "object.spec.size > 1"},),
    namespace_selector={"matchLabels": {"boxes": "yes"}},
    timeout_seconds=3,
)
URL = Url("https://127.0.0.1:9443/")
SERVICE = Service("berth-system", "berth-webhook")


class Scene:
    def __init__(
        self, target: Url | Service = URL, webhooks: tuple[Webhook, ...] = (MUTATE, VALIDATE)
    ) -> None:
        self.server = FakeApi()
        self.link: Link = self.server.link()
        self.registration = Registration(self.link, Plan("berth", webhooks, target))

    def entry(self, resource: Any = VALIDATING) -> dict[str, Any]:
        entries: list[dict[str, Any]] = self.server.stored(resource, "berth")["webhooks"]
        assert len(entries) == 1
        return entries[0]

    def bundle(self, resource: Any = VALIDATING) -> bytes:
        return base64.b64decode(self.entry(resource)["clientConfig"].get("caBundle", ""))


def play(story: Callable[[Scene], Awaitable[None]], scene: Callable[[], Scene] = Scene) -> None:
    async def main() -> None:
        await story(scene())

    run(main())


def test_both_kinds_are_registered_with_everything_the_definition_says() -> None:
    async def story(scene: Scene) -> None:
        assert await scene.registration.sync(b"CA") == 2
        assert scene.entry(MUTATING)["reinvocationPolicy"] == "Never"
        assert scene.entry(MUTATING)["failurePolicy"] == "Ignore"
        assert scene.entry() == {
            "name": "validate.boxes.example.org",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:9443/validate", "caBundle": "Q0E="},
            "rules": [BOXES],
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": 3,
            "namespaceSelector": {"matchLabels": {"boxes": "yes"}},
            "objectSelector": {},
            "matchConditions": [{"name": "big", "expression": "object.spec.size > 1"}],
        }

    play(story)


def test_a_service_is_named_instead_of_a_url() -> None:
    async def story(scene: Scene) -> None:
        await scene.registration.sync(b"CA")
        service = {"namespace": "berth-system", "name": "berth-webhook", "port": 443, "path": "/validate"}
        assert scene.entry()["clientConfig"]["service"] == service

    play(story, lambda: Scene(SERVICE))


def test_a_kind_without_webhooks_gets_no_object() -> None:
    async def story(scene: Scene) -> None:
        assert await scene.registration.sync(b"CA") == 1
        with pytest.raises(NotFound):
            scene.server.stored(MUTATING, "berth")

    play(story, lambda: Scene(webhooks=(VALIDATE,)))


def test_a_second_pass_writes_nothing() -> None:
    async def story(scene: Scene) -> None:
        await scene.registration.sync(b"CA")
        writes = len(scene.server.writes)
        assert await scene.registration.sync(b"CA") == 0
        assert len(scene.server.writes) == writes

    play(story)


def test_what_the_server_or_others_added_is_left_alone() -> None:
    async def story(scene: Scene) -> None:
        await scene.registration.sync(b"CA")
        stored = scene.server.stored(VALIDATING, "berth")
        stored["metadata"]["labels"]["team"] = "blue"
        stored["webhooks"][0]["newField"] = "by a newer server"
        scene.server.swap(VALIDATING, stored)
        assert await scene.registration.sync(b"CA") == 0
        assert await scene.registration.sync(b"CA2") == 2
        assert scene.entry()["newField"] == "by a newer server"
        assert scene.server.stored(VALIDATING, "berth")["metadata"]["labels"]["team"] == "blue"

    play(story)


def test_what_others_changed_of_ours_is_put_right() -> None:
    async def story(scene: Scene) -> None:
        await scene.registration.sync(b"CA")
        stored = scene.server.stored(VALIDATING, "berth")
        stored["webhooks"][0]["failurePolicy"] = "Ignore"
        stored["webhooks"].append({"name": "old.boxes.example.org"})
        scene.server.swap(VALIDATING, stored)
        assert await scene.registration.sync(b"CA") == 1
        assert scene.entry()["failurePolicy"] == "Fail"

    play(story)


def test_a_condition_that_was_dropped_goes_from_the_cluster_too() -> None:
    async def story(scene: Scene) -> None:
        await scene.registration.sync(b"CA")
        plain = Webhook(VALIDATE.name, VALIDATE.path, VALIDATE.rules)
        await Registration(scene.link, Plan("berth", (plain,), URL)).sync(b"CA")
        assert "matchConditions" not in scene.entry()

    play(story)


def test_without_a_bundle_the_one_someone_else_put_there_stays() -> None:
    async def story(scene: Scene) -> None:
        await scene.registration.sync(b"injected")
        assert await scene.registration.sync(b"") == 0
        assert scene.bundle() == b"injected"

    play(story)


def test_two_replicas_that_register_at_once_agree() -> None:
    async def story(scene: Scene) -> None:
        other = Registration(scene.server.link(), Plan("berth", (MUTATE, VALIDATE), URL))
        written = await asyncio.gather(scene.registration.sync(b"CA"), other.sync(b"CA"))
        assert sum(written) == 2

    play(story)


def test_at_a_clean_stop_what_was_registered_by_url_is_taken_away() -> None:
    async def story(scene: Scene) -> None:
        await scene.registration.sync(b"CA")
        await scene.registration.remove()
        assert scene.server.objects == {}
        await scene.registration.remove()

    play(story)


@pytest.mark.parametrize("fault", ["down", "hangs"])
def test_a_stop_without_an_api_server_takes_seconds_and_tells_what_is_left_behind(fault: str) -> None:
    async def story(scene: Scene) -> None:
        await scene.registration.sync(b"CA")
        setattr(scene.link, fault, True)
        with capture_logs() as lines:
            await scene.registration.remove()
        assert now() < 4.0
        assert [(line["log_level"], line["name"]) for line in lines] == [("warning", "berth")]
        assert "kubectl delete" in lines[0]["event"]

    play(story)


def test_what_was_registered_for_a_service_stays() -> None:
    async def story(scene: Scene) -> None:
        await scene.registration.sync(b"CA")
        await scene.registration.remove()
        assert len(scene.server.objects) == 2

    play(story, lambda: Scene(SERVICE))


def test_what_points_to_another_process_by_now_is_not_ours_to_take_away() -> None:
    async def story(scene: Scene) -> None:
        await scene.registration.sync(b"CA")
        successor = Plan("berth", (MUTATE, VALIDATE), Url("https://127.0.0.1:9444"))
        await Registration(scene.link, successor).sync(b"CA")
        await scene.registration.remove()
        assert len(scene.server.objects) == 2

    play(story)


class Trust:
    """A certificate the test changes."""

    def __init__(self) -> None:
        self.bundle = b"CA"
        self._changed = asyncio.Event()

    def change(self, bundle: bytes) -> None:
        self.bundle = bundle
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        await self._changed.wait()


def kept(story: Callable[[Scene, Trust], Awaitable[None]]) -> None:
    async def main() -> None:
        scene, trust = Scene(), Trust()
        task = asyncio.create_task(scene.registration.run(trust))
        await story(scene, trust)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    run(main())


def test_a_new_certificate_is_told_at_once() -> None:
    async def story(scene: Scene, trust: Trust) -> None:
        await asyncio.sleep(1)
        trust.change(b"CA2")
        await asyncio.sleep(1)
        assert scene.bundle() == scene.bundle(MUTATING) == b"CA2"

    kept(story)


def test_a_certificate_that_changes_during_a_pass_is_not_missed() -> None:
    async def story(scene: Scene, trust: Trust) -> None:
        await asyncio.sleep(0.0015)  # between the pass's first read and its first write
        trust.change(b"CA2")
        await asyncio.sleep(1)
        assert scene.bundle() == b"CA2"

    kept(story)


def test_what_was_removed_meanwhile_comes_back() -> None:
    async def story(scene: Scene, trust: Trust) -> None:
        await asyncio.sleep(1)
        scene.server.objects.clear()
        await asyncio.sleep(301)
        assert len(scene.server.objects) == 2

    kept(story)


def test_an_outage_is_waited_out() -> None:
    async def story(scene: Scene, trust: Trust) -> None:
        scene.link.down = True
        await asyncio.sleep(60)
        assert scene.server.objects == {}
        scene.link.down = False
        await asyncio.sleep(6)
        assert len(scene.server.objects) == 2

    kept(story)
