"""Every verb on the real API server."""

from __future__ import annotations

import asyncio
import base64
import gc
import resource as machine
import stat
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
import yaml
from tests.kube.certificates import Authority
from tests.kube.scripted import CONFIGMAPS
from tests.support.eventually import eventually

from berth import errors, log
from berth.control.cache import Cache
from berth.devcluster import ClusterOptions, DevCluster
from berth.kube import auth, meta, patch
from berth.kube.client import Client, PatchKind
from berth.kube.resource import Resource
from berth.kube.watch import reflect

pytestmark = pytest.mark.cluster

NAMESPACES = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts")
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
FINALIZER = "berth.test/held"


def configmap(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def definition(widgets: Resource) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": widgets.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"kind": widgets.kind, "plural": widgets.plural}
    spec = {"group": widgets.group, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": widgets.key}, "spec": spec}


@pytest_asyncio.fixture
async def widgets(client: Client, namespace: str) -> AsyncIterator[Resource]:
    """A custom kind with a status subresource, of this test's own group."""
    kind = Resource(f"{namespace}.berth.test", "v1", "Widget", "widgets")
    await client.create(CRDS, definition(kind))
    await eventually(lambda: _is_served(client, kind))
    yield kind
    await client.delete(CRDS, kind.key)


async def _is_served(client: Client, kind: Resource) -> bool:
    try:
        await client.list(kind)
    except errors.NotFound:
        return False
    return True


# Verbs


async def test_an_object_is_created_read_replaced_and_deleted(client: Client, namespace: str) -> None:
    made = await client.create(CONFIGMAPS, configmap("a", x="1"), namespace)
    assert await client.get(CONFIGMAPS, "a", namespace) == made
    replaced = await client.replace(CONFIGMAPS, {**made, "data": {"x": "2"}})
    assert replaced["data"] == {"x": "2"}
    assert await client.delete(CONFIGMAPS, "a", namespace, uid=meta.uid(made)) is None
    with pytest.raises(errors.NotFound):
        await client.get(CONFIGMAPS, "a", namespace)


async def test_a_name_that_is_taken_is_already_exists(client: Client, namespace: str) -> None:
    await client.create(CONFIGMAPS, configmap("a"), namespace)
    with pytest.raises(errors.AlreadyExists):
        await client.create(CONFIGMAPS, configmap("a"), namespace)


async def test_an_old_version_is_a_conflict(client: Client, namespace: str) -> None:
    old = await client.create(CONFIGMAPS, configmap("a", x="1"), namespace)
    await client.patch(CONFIGMAPS, "a", {"data": {"x": "2"}}, namespace)
    with pytest.raises(errors.Conflict):
        await client.replace(CONFIGMAPS, old)
    with pytest.raises(errors.Conflict):
        await client.patch(CONFIGMAPS, "a", patch.guarded({"data": {"x": "3"}}, old), namespace)
    with pytest.raises(errors.Conflict):
        await client.delete(CONFIGMAPS, "a", namespace, resource_version=meta.resource_version(old))


async def test_another_object_of_the_same_name_is_a_conflict(client: Client, namespace: str) -> None:
    old = await client.create(CONFIGMAPS, configmap("a"), namespace)
    await client.delete(CONFIGMAPS, "a", namespace)
    await client.create(CONFIGMAPS, configmap("a"), namespace)
    with pytest.raises(errors.Conflict):
        await client.patch(CONFIGMAPS, "a", {"metadata": {"uid": meta.uid(old)}, "data": {}}, namespace)
    with pytest.raises(errors.Conflict):
        await client.delete(CONFIGMAPS, "a", namespace, uid=meta.uid(old))
    steps = patch.add_finalizer(old, FINALIZER)
    assert steps
    with pytest.raises(errors.Conflict):
        await client.patch(CONFIGMAPS, "a", steps, namespace, kind=PatchKind.JSON)


async def test_a_merge_patch_changes_only_what_differs(client: Client, namespace: str) -> None:
    made = await client.create(CONFIGMAPS, configmap("a", keep="1", drop="1"), namespace)
    change = patch.diff(made, {**made, "data": {"keep": "1", "new": "1"}})
    assert change == {"data": {"drop": None, "new": "1"}}
    changed = await client.patch(CONFIGMAPS, "a", change, namespace)
    assert changed["data"] == {"keep": "1", "new": "1"}


async def test_finalizers_of_many_writers_all_stay_and_all_go(client: Client, namespace: str) -> None:
    await client.create(CONFIGMAPS, configmap("a"), namespace)

    async def edit(to: Callable[[dict[str, Any]], list[dict[str, Any]] | None]) -> None:
        while steps := to(await client.get(CONFIGMAPS, "a", namespace)):
            try:
                await client.patch(CONFIGMAPS, "a", steps, namespace, kind=PatchKind.JSON)
            except errors.Conflict:
                continue

    def removed(obj: dict[str, Any], name: str) -> list[dict[str, Any]] | None:
        return patch.remove_finalizer(obj, name) if meta.has_finalizer(obj, name) else None

    names = [f"{FINALIZER}-{number}" for number in range(10)]
    await asyncio.gather(*(edit(partial(patch.add_finalizer, finalizer=name)) for name in names))
    held = await client.get(CONFIGMAPS, "a", namespace)
    assert sorted(meta.finalizers(held)) == names
    await asyncio.gather(*(edit(partial(removed, name=name)) for name in names))
    assert not meta.finalizers(await client.get(CONFIGMAPS, "a", namespace))


@pytest.mark.parametrize("others", [[], ["berth.test/another"]])
async def test_who_looked_before_another_of_us_held_it_is_refused(
    client: Client, namespace: str, others: list[str]
) -> None:
    """The other one may have answered since; what is decided on the old sight must not go over that."""
    obj = configmap("a")
    obj["metadata"]["finalizers"] = others
    seen = await client.create(CONFIGMAPS, obj, namespace)
    steps = patch.add_finalizer(seen, FINALIZER)
    assert steps
    held = await client.patch(CONFIGMAPS, "a", steps, namespace, kind=PatchKind.JSON)
    assert meta.finalizers(held) == [*others, FINALIZER]
    with pytest.raises(errors.Conflict):
        await client.patch(CONFIGMAPS, "a", steps, namespace, kind=PatchKind.JSON)


async def test_a_status_patch_leaves_the_spec_alone(
    client: Client, namespace: str, widgets: Resource
) -> None:
    body = {
        "apiVersion": widgets.api_version,
        "kind": widgets.kind,
        "metadata": {"name": "w"},
        "spec": {"size": 1},
    }
    await client.create(widgets, body, namespace)
    change = {"spec": {"size": 2}, "status": {"ready": True}}
    shown = await client.patch(widgets, "w", change, namespace, subresource="status")
    assert (shown["spec"], shown["status"]) == ({"size": 1}, {"ready": True})
    shown["status"] = {"ready": False}
    replaced = await client.replace(widgets, shown, subresource="status")
    assert replaced["status"] == {"ready": False}


async def test_apply_owns_its_fields_and_takes_others_only_by_force(client: Client, namespace: str) -> None:
    async def apply(manager: str, value: str, force: bool = False) -> dict[str, Any]:
        return await client.patch(
            CONFIGMAPS,
            "a",
            configmap("a", x=value),
            namespace,
            kind=PatchKind.APPLY,
            field_manager=manager,
            force=force,
        )

    assert (await apply("one", "1"))["data"] == {"x": "1"}
    with pytest.raises(errors.Conflict):
        await apply("two", "2")
    assert (await apply("two", "2", force=True))["data"] == {"x": "2"}


async def test_a_dry_run_leaves_nothing_behind(client: Client, namespace: str) -> None:
    assert (await client.create(CONFIGMAPS, configmap("a"), namespace, dry_run=True))["metadata"]["uid"]
    with pytest.raises(errors.NotFound):
        await client.get(CONFIGMAPS, "a", namespace)
    made = await client.create(CONFIGMAPS, configmap("a", x="1"), namespace)
    await client.patch(CONFIGMAPS, "a", {"data": {"x": "2"}}, namespace, dry_run=True)
    await client.replace(CONFIGMAPS, {**made, "data": {"x": "3"}}, dry_run=True)
    assert await client.get(CONFIGMAPS, "a", namespace) == made


async def test_an_object_that_breaks_the_rules_is_invalid(client: Client, namespace: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        await client.create(CONFIGMAPS, configmap("Not A Name"), namespace)
    assert caught.value.details["causes"]
    await client.create(CONFIGMAPS, configmap("a"), namespace)
    steps = [{"op": "add", "path": "/data", "value": {"a b": "c"}}]
    with pytest.raises(errors.Invalid):
        await client.patch(CONFIGMAPS, "a", steps, namespace, kind=PatchKind.JSON)


async def test_lists_come_in_pages_filtered_and_with_their_kind(client: Client, namespace: str) -> None:
    labelled = meta.with_labels(configmap("odd"), {"odd": "yes"})
    await client.create(CONFIGMAPS, labelled, namespace)
    async with asyncio.TaskGroup() as tasks:
        for number in range(520):
            tasks.create_task(client.create(CONFIGMAPS, configmap(f"c{number}"), namespace))
    found = await client.list(CONFIGMAPS, namespace)
    assert len({meta.ref(item) for item in found.items}) == 521
    assert {(item["apiVersion"], item["kind"]) for item in found.items} == {("v1", "ConfigMap")}
    assert int(found.resource_version) >= max(int(meta.resource_version(item)) for item in found.items)
    odd = await client.list(CONFIGMAPS, namespace, label_selector="odd=yes")
    assert [item["metadata"]["name"] for item in odd.items] == ["odd"]
    named = await client.list(CONFIGMAPS, namespace, field_selector="metadata.name=c7")
    assert [item["metadata"]["name"] for item in named.items] == ["c7"]
    assert int(await client.revision(CONFIGMAPS)) >= int(found.resource_version)


async def test_a_continue_token_that_expires_on_the_way_costs_nothing_but_time() -> None:
    """The server compacts its store every second and has no cache to page from."""
    flags = ("--etcd-compaction-interval=1s", "--watch-cache=false")
    async with (
        DevCluster(ClusterOptions(apiserver_flags=flags)) as own,
        Client(auth.load(own.kubeconfig)) as client,
    ):
        for number in range(4):
            await client.create(CONFIGMAPS, configmap(f"c{number}"), "default")
        path = CONFIGMAPS.path("default")
        first = await client.raw("GET", path, params={"limit": "2"})
        token = {"limit": "2", "continue": first["metadata"]["continue"]}

        async def asking() -> None:
            while True:
                await client.patch(CONFIGMAPS, "c0", {"data": {"at": str(time.time())}}, "default")
                await client.raw("GET", path, params=token)

        with pytest.raises(errors.Gone):
            await asyncio.wait_for(asking(), 60)
        found = await client.list(CONFIGMAPS, "default", limit=2)
        assert len(found.items) == 4


@pytest.mark.slow
@pytest.mark.timeout(900)  # creating them takes 25 s on a quiet machine of two cores, minutes on a busy one
async def test_twenty_thousand_objects_are_listed_in_pages_and_cached(
    cluster: DevCluster, client: Client, namespace: str
) -> None:
    """About the size of a claim each. What it took is said (pytest -rP), and in docs/decisions/0004."""
    count = 20_000
    names = iter(range(count))

    async def make() -> None:
        for number in names:
            data = {"text": "x" * 400, "pool": f"p{number % 100}"}
            await client.create(CONFIGMAPS, configmap(f"c{number}", **data), namespace)

    await asyncio.gather(*(make() for _ in range(64)))
    verbs: list[str] = []
    cache = Cache({"pool": lambda obj: [obj["data"]["pool"]]})
    credentials = auth.load(cluster.kubeconfig)
    gc.collect()
    before_mb, started_at = _resident_mb(), time.perf_counter()
    async with Client(credentials, observe=lambda verb, *_: verbs.append(verb)) as reader:
        task = asyncio.create_task(reflect(reader, CONFIGMAPS, cache, namespace=namespace))
        try:
            await filled(cache)
        finally:
            task.cancel()
            await asyncio.wait([task])
    seconds = time.perf_counter() - started_at
    grown_mb = _resident_mb() - before_mb
    log.get("berth.test").info("cached", objects=count, seconds=round(seconds, 2), mb=round(grown_mb))
    assert (verbs.count("list"), len(cache)) == (count // 500, count)
    assert [cache.count_by("pool", f"p{number}") for number in range(100)] == [count // 100] * 100
    assert grown_mb / count < 0.01, "ten kilobytes an object, page buffers and garbage included"


async def filled(cache: Cache) -> None:
    async def look() -> bool:
        return cache.filled

    await eventually(look, 300)


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * machine.getpagesize() / 1e6


# Who we are


async def _token(client: Client, namespace: str) -> str:
    await client.create(ACCOUNTS, {"metadata": {"name": "robot"}}, namespace)
    path = ACCOUNTS.path(namespace, "robot", "token")
    answer = await client.raw("POST", path, body={"spec": {"expirationSeconds": 600}})
    return str(answer["status"]["token"])


def _kubeconfig(cluster: DevCluster, file: Path, user: dict[str, Any]) -> Path:
    """The cluster's own kubeconfig, with another user."""
    body = yaml.safe_load(cluster.kubeconfig.read_text())
    body["users"] = [{"name": entry["name"], "user": user} for entry in body["users"]]
    file.write_text(yaml.safe_dump(body))
    return file


@pytest.mark.parametrize("way", ["token", "tokenFile", "exec"])
async def test_a_service_account_is_known_by_its_token(
    cluster: DevCluster, client: Client, namespace: str, tmp_path: Path, way: str
) -> None:
    token = await _token(client, namespace)
    (tmp_path / "token").write_text(token)
    program = tmp_path / "get-token"
    version = "client.authentication.k8s.io/v1"
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}}
    program.write_text(f"#!/bin/sh\necho '{orjson.dumps(credential).decode()}'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    users: dict[str, dict[str, Any]] = {
        "token": {"token": token},
        "tokenFile": {"tokenFile": "token"},
        "exec": {"exec": {"apiVersion": version, "command": "./get-token"}},
    }
    async with Client(auth.load(_kubeconfig(cluster, tmp_path / "config", users[way]))) as robot:
        with pytest.raises(errors.Forbidden, match=f"system:serviceaccount:{namespace}:robot"):
            await robot.list(CONFIGMAPS, namespace)


async def test_a_wrong_token_is_one_sentence(cluster: DevCluster, tmp_path: Path) -> None:
    async with Client(auth.load(_kubeconfig(cluster, tmp_path / "config", {"token": "wr0ng"}))) as nobody:
        with pytest.raises(errors.UserError) as caught:
            await nobody.check()
    assert "refused us: Unauthorized." in str(caught.value)
    assert "wr0ng" not in str(caught.value)


async def test_a_wrong_authority_is_one_sentence(cluster: DevCluster, tmp_path: Path) -> None:
    body = yaml.safe_load(cluster.kubeconfig.read_text())
    section = body["clusters"][0]["cluster"]
    section.pop("certificate-authority", None)
    section["certificate-authority-data"] = base64.b64encode(Authority().pem).decode()
    for user in body["users"]:
        for key in ("client-certificate", "client-key"):
            if key in user["user"]:
                user["user"][key] = str(cluster.kubeconfig.parent / user["user"][key])
    (tmp_path / "config").write_text(yaml.safe_dump(body))
    async with Client(auth.load(tmp_path / "config")) as client:
        with pytest.raises(errors.UserError, match="its certificate is not trusted"):
            await client.check()


async def test_the_servers_version_is_told(client: Client) -> None:
    assert (await client.check())["gitVersion"].startswith("v1.")
