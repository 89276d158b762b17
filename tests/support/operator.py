"""The operator as a task of the test's own loop, on a real control plane with the CRDs it needs.

    async with running(cluster, dialects=("metal3",)) as operator:
        await operator.client.create(kinds.POOL, pool, namespace)
        await eventually(lambda: is_served(operator.client))

The operator and the tests that look at it share one loop: mark a module's tests and its operator fixture with
`loop_scope="session"`. Nothing waits for a fixed time; `eventually` looks until it is so, or gives up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import yaml
from tests.support.settings import settings_of

from berth.devcluster import DevCluster
from berth.devcluster.crds import USUAL, cluster_api_crds
from berth.dialects import named
from berth.errors import AlreadyExists, KubeError, NotFound
from berth.kube import auth, meta
from berth.kube.client import Client
from berth.kube.resource import Resource
from berth.run import Listening, operate
from berth.settings import Settings

Object = dict[str, Any]
T = TypeVar("T")

CRD = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
PATIENCE_SECONDS = 60.0  # a slow machine must pass; whoever passes sooner does not wait for it
STOP_SECONDS = PATIENCE_SECONDS


@dataclass(frozen=True, slots=True)
class Operator:
    """A running operator, and an administrator's client beside it."""

    client: Client
    listening: Listening
    task: asyncio.Task[None]
    settings: Settings


@asynccontextmanager
async def running(
    cluster: DevCluster, *, crds: Iterable[Object] | None = None, **settings: Any
) -> AsyncIterator[Operator]:
    """Installs the CRDs of the dialects and of Cluster API (or just `crds`), and runs the operator.

    An operator that ends by itself is the test's failure, told when the block is left.
    """
    chosen = settings_of(**{"kubeconfig": cluster.kubeconfig, **settings})
    async with admin(cluster) as client:
        await install(client, crds_of(*chosen.dialects) if crds is None else crds)
        ports: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(
            operate(chosen, lambda told: None if ports.done() else ports.set_result(told))
        )
        try:
            started: list[asyncio.Future[Any]] = [task, ports]
            await asyncio.wait(started, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await task
            yield Operator(client, ports.result(), task, chosen)
        finally:
            await _stop(task)


async def _stop(task: asyncio.Task[None]) -> None:
    if task.done():
        task.result()
        raise AssertionError("the operator ended by itself")
    task.cancel()
    async with asyncio.timeout(STOP_SECONDS):
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def admin(cluster: DevCluster) -> AsyncIterator[Client]:
    async with Client(auth.load(cluster.kubeconfig), user_agent="test") as client:
        yield client


# CRDs


def crds_of(*dialects: str) -> list[Object]:
    """The CRDs of these dialects, and Cluster API's own, as the operator meets them in a cluster."""
    own = [crd for dialect in named(dialects) for crd in dialect.crds()]
    return [*own, *capi_crds()]


def capi_crds(names: Iterable[str] = USUAL) -> list[Object]:
    """Cluster API's real CRDs. Versions are told apart by their schemas only: nobody converts here."""
    return [
        _plain(crd)
        for path in cluster_api_crds(names)
        for crd in yaml.safe_load_all(path.read_text())
        if crd is not None
    ]


def _plain(crd: Object) -> Object:
    crd["spec"].pop("conversion", None)
    return crd


async def install(client: Client, crds: Iterable[Object]) -> None:
    """Returns when the API server serves every one of them; those that are there already are kept."""
    wanted = list(crds)
    for crd in wanted:
        with suppress(AlreadyExists):
            await client.create(CRD, crd)
    for crd in wanted:
        await eventually(partial(_serves, client, crd))


async def _serves(client: Client, crd: Object) -> bool:
    spec = crd["spec"]
    version = next(version["name"] for version in spec["versions"] if version["storage"])
    listing = await client.raw("GET", f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1")
    found = await client.get(CRD, crd["metadata"]["name"])
    return "items" in listing and meta.is_true(found, "Established")


# Waiting


async def eventually(
    check: Callable[[], Awaitable[T]], seconds: float = PATIENCE_SECONDS, *, every: float = 0.02
) -> T:
    """What `check` returns once that is true. Until then a false answer, a failed `assert` and an object that
    is not there all mean: look again. At the end the last of them is the failure."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = await check()
            if found:
                return found
            assert time.monotonic() < deadline, f"still {found!r} after {seconds:g} s"
        except (AssertionError, KubeError):
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(every)


async def gone(
    client: Client, resource: Resource, name: str, namespace: str = "", seconds: float = PATIENCE_SECONDS
) -> None:
    """Returns when the object no longer exists."""
    await eventually(partial(_is_gone, client, resource, name, namespace), seconds)


async def _is_gone(client: Client, resource: Resource, name: str, namespace: str) -> bool:
    try:
        await client.get(resource, name, namespace)
    except NotFound:
        return True
    return False


# Objects


def built(
    resource: Resource,
    name: str,
    spec: Mapping[str, Any] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **metadata: Any,
) -> Object:
    """An object of this kind, ready to be created; `metadata` is whatever else belongs there."""
    about: Object = {"name": name, **metadata}
    if labels is not None:
        about["labels"] = dict(labels)
    if annotations is not None:
        about["annotations"] = dict(annotations)
    body: Object = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": about}
    return body if spec is None else {**body, "spec": dict(spec)}
