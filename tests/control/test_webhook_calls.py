"""Admission on the real API server: called by URL under our own certificate, before and after rotation."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from tests.support.eventually import eventually

from berth.control.admission import Admission
from berth.control.ca_store import OwnKeyring, Recipe, SharedKeyring
from berth.control.certs import Certificates
from berth.control.listen import Listen, Server
from berth.control.review import Answer, Faults, Review, allowed, denied, patched
from berth.control.webhooks import MUTATING, VALIDATING, Plan, Registration, Url, Webhook, rule
from berth.control.x509 import Policy
from berth.devcluster import DevCluster
from berth.errors import Forbidden, Invalid, KubeError, NotFound, ServerError
from berth.kube import auth
from berth.kube.client import Client
from berth.kube.resource import Resource
from berth.metrics import Metrics

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]

CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
POLICY = Policy(timedelta(minutes=30), timedelta(minutes=3), timedelta(minutes=1))


async def mutate(review: Review) -> Answer:
    labels = {**(review.object["metadata"].get("labels") or {}), "seen": "yes"}
    return patched(review, {**review.object, "metadata": {**review.object["metadata"], "labels": labels}})


async def hang(review: Review) -> Answer:
    await asyncio.Event().wait()
    return allowed()


@dataclass
class Clock:
    """The certificates' own time. They are made an hour into the past, so it may run ahead a little."""

    ahead: timedelta = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@dataclass
class Stage:
    """A webhook server for the ConfigMaps of one namespace, and a client that writes some."""

    client: Client
    namespace: str
    certificates: Certificates
    clock: Clock
    reviews: list[Review] = field(default_factory=list)
    handshakes: int = 0
    metrics: Metrics = field(default_factory=Metrics)
    registration: Registration = field(init=False)
    server: Server = field(init=False)

    async def validate(self, review: Review) -> Answer:
        self.reviews.append(review)
        data = review.object.get("data") or {}
        faults = Faults()
        for key in data:
            if key.startswith("bad"):
                faults.add(f"data.{key}", data[key], "is bad")
        return denied("not today") if "never" in data else faults.answer(review).warning("looked at")

    @asynccontextmanager
    async def serving(self, **changes: Any) -> AsyncIterator[None]:
        await self.certificates.refresh()
        routes = {"/validate": self.validate, "/mutate": mutate, "/hang": hang}
        admission = Admission(routes, self.metrics)
        self.count_handshakes()
        self.server = await admission.serve(Listen("127.0.0.1", 0), self.certificates.context)
        self.registration = Registration(self.client, self.plan(**changes))
        try:
            await self.registration.sync(self.certificates.bundle)
            yield
        finally:
            await self.registration.remove()
            await self.server.stop()

    def plan(self, **changes: Any) -> Plan:
        where = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}
        rules = (rule("", "v1", ["configmaps"], ["CREATE", "UPDATE"]),)
        validate = Webhook("validate.maps.berth.test", "/validate", rules, namespace_selector=where)
        # The API server itself puts a ConfigMap into every namespace; it is none of our business.
        ours = {"name": "ours", "expression": "!object.metadata.name.startsWith('kube-')"}
        validate = replace(validate, match_conditions=(ours,), **changes)
        default = replace(validate, name="default.maps.berth.test", path="/mutate", mutating=True)
        target = Url(f"https://127.0.0.1:{self.server.port}")
        return Plan(f"berth-{self.namespace}", (default, validate) if not changes else (validate,), target)

    async def write(self, dry_run: bool = False, **data: str) -> dict[str, Any]:
        name = f"map-{uuid.uuid4().hex[:8]}"
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        return await self.client.create(CONFIG_MAPS, obj, self.namespace, dry_run=dry_run)

    async def is_asked(self) -> bool:
        """Whether the API server has taken the registration over and trusts what we serve."""
        before = len(self.reviews)
        try:
            await self.write(dry_run=True)
        except KubeError:
            return False
        return len(self.reviews) > before

    def answers(self, path: str, result: str) -> float:
        labels = {"webhook": path, "result": result}
        return self.metrics.registry.get_sample_value("berth_webhook_requests_total", labels) or 0.0

    def count_handshakes(self) -> None:
        context = self.certificates.context
        choose: Any = context.sni_callback

        def counted(*of_connection: Any) -> None:
            self.handshakes += 1
            choose(*of_connection)

        context.sni_callback = counted

    async def is_asked_anew(self) -> bool:
        """The same over a new connection: the API server meets the certificate of this moment."""
        before = self.handshakes
        self.hang_up()
        return await eventually(self.is_asked) and self.handshakes > before

    def hang_up(self) -> None:
        assert self.server.runner.server is not None
        for connection in self.server.runner.server.connections:
            connection.force_close()


@pytest_asyncio.fixture(loop_scope="session")
async def stage(cluster: DevCluster, namespace: str) -> AsyncIterator[Stage]:
    clock = Clock()
    recipe = Recipe(("127.0.0.1",), POLICY, clock.now)
    async with Client(auth.load(cluster.kubeconfig)) as client:
        yield Stage(client, namespace, Certificates(OwnKeyring(recipe)), clock)


async def test_the_api_server_asks_and_heeds_every_kind_of_answer(stage: Stage) -> None:
    async with stage.serving():
        await eventually(stage.is_asked)
        made = await stage.write(fine="1")
        assert made["metadata"]["labels"] == {"seen": "yes"}
        with pytest.raises(Forbidden, match=r'"validate\.maps\.berth\.test" denied the request: not today'):
            await stage.write(never="1")
        with pytest.raises(Invalid) as raised:
            await stage.write(bad1="x", bad2="y")
    error = raised.value
    assert (error.code, error.status_reason) == (422, "Invalid")
    assert 'data.bad1: Invalid value: "x": is bad' in error.message
    causes = [(cause["field"], cause["message"]) for cause in error.details["causes"]]
    assert causes == [
        ("data.bad1", 'Invalid value: "x": is bad'),
        ("data.bad2", 'Invalid value: "y": is bad'),
    ]


async def test_a_review_tells_who_asks_for_what_and_whether_it_is_a_rehearsal(stage: Stage) -> None:
    async with stage.serving():
        await eventually(stage.is_asked)
        stage.reviews.clear()
        made = await stage.write(fine="1")
        await stage.client.patch(
            CONFIG_MAPS, made["metadata"]["name"], {"data": {"fine": "2"}}, stage.namespace
        )
        await stage.write(dry_run=True)
    created, updated, rehearsed = stage.reviews
    assert (created.operation, created.name, created.dry_run) == ("CREATE", made["metadata"]["name"], False)
    assert created.user.name
    assert created.options["kind"] == "CreateOptions"
    assert (updated.operation, updated.old_object["data"], updated.object["data"]) == (
        "UPDATE",
        {"fine": "1"},
        {"fine": "2"},
    )
    assert rehearsed.dry_run


async def test_after_a_new_certificate_and_after_a_new_authority_it_is_still_asked(stage: Stage) -> None:
    async with stage.serving():
        await eventually(stage.is_asked)
        first = stage.certificates.bundle

        stage.clock.ahead = timedelta(minutes=2, seconds=30)
        assert await stage.certificates.refresh(), "the serving certificate was due"
        assert stage.certificates.bundle == first
        assert await stage.is_asked_anew(), "a new certificate needs no new registration"

        stage.clock.ahead = timedelta(minutes=21)
        assert await stage.certificates.refresh(), "the authority was due"
        assert len(stage.certificates.bundle) > len(first), (
            "the new authority is announced beside the old one"
        )
        assert await stage.is_asked_anew(), "servers that have not heard of it still trust us"
        assert await stage.registration.sync(stage.certificates.bundle) == 2

        stage.clock.ahead = timedelta(minutes=23)
        assert await stage.certificates.refresh(), "the new authority signs now"
        assert await stage.is_asked_anew()


async def test_a_certificate_the_registration_does_not_vouch_for_is_refused(stage: Stage) -> None:
    """The other tests would pass against a server that trusts anybody; this one would not."""
    stranger = OwnKeyring(Recipe(("127.0.0.1",)))
    async with stage.serving():
        await eventually(stage.is_asked)
        await stage.registration.sync((await stranger.load()).bundle)

        async def is_refused() -> str:
            try:
                await stage.write(dry_run=True)
            except ServerError as error:
                return error.message
            return ""

        assert "certificate signed by unknown authority" in await eventually(is_refused)


async def test_a_second_registration_writes_nothing(stage: Stage) -> None:
    async with stage.serving():
        assert await stage.registration.sync(stage.certificates.bundle) == 0


async def test_a_clean_stop_leaves_no_registration_and_writes_go_through(stage: Stage) -> None:
    async with stage.serving():
        await eventually(stage.is_asked)
        with pytest.raises(Forbidden):
            await stage.write(never="1")
    for resource in (MUTATING, VALIDATING):
        with pytest.raises(NotFound):
            await stage.client.get(resource, f"berth-{stage.namespace}")

    async def goes_through() -> bool:
        try:
            return bool(await stage.write(never="1"))
        except KubeError:
            return False

    assert await eventually(goes_through)


async def test_a_webhook_that_hangs_delays_a_write_by_its_timeout_and_no_more(stage: Stage) -> None:
    loop = asyncio.get_running_loop()
    async with stage.serving(path="/hang", failure_policy="Ignore", timeout_seconds=2):

        async def seconds_taken() -> float:
            started_at = loop.time()
            await stage.write()
            return loop.time() - started_at if stage.answers("/hang", "timeout") else 0.0

        # Our own deadline is half a second before the server's: it hears from us before it gives up on us.
        assert await eventually(seconds_taken) >= 1.5
        assert stage.answers("/hang", "timeout") == 1


async def test_replicas_share_one_certificate_through_a_secret(stage: Stage) -> None:
    recipe = Recipe(("127.0.0.1",), POLICY, stage.clock.now)
    replicas = [SharedKeyring(stage.client, stage.namespace, "berth-webhook", recipe) for _ in range(4)]
    first = await asyncio.gather(*(replica.load() for replica in replicas))
    assert len(set(first)) == 1
    stage.clock.ahead = timedelta(minutes=2, seconds=30)
    second = await asyncio.gather(*(replica.load() for replica in replicas))
    assert len(set(second)) == 1
    assert second[0].certificate != first[0].certificate
    assert second[0].bundle == first[0].bundle
