"""Starts everything on this machine, applies the examples, shows what was handed out, and waits for Ctrl-C.

    etcd + kube-apiserver ─► CRDs ─► IPAM-API on SQLite ─► operator, all dialects ─► examples ─► tables

All of it belongs to this process and is gone when it ends; the data is in a temporary directory.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from berth import log
from berth.central.serve import serve
from berth.central.settings import ApiSettings
from berth.devcluster import Binaries, DevCluster, ports
from berth.devcluster.crds import cluster_api_crds, prepare_cluster_api_crds
from berth.devcluster.faults import explained
from berth.devcluster.programs import CORE
from berth.devcluster.progress import Bar, Step
from berth.dialects import DIALECTS
from berth.errors import AlreadyExists, UserError
from berth.kube import auth
from berth.kube.client import Client
from berth.kube.resource import Resource
from berth.run import operate
from berth.settings import Settings
from berth.up import examples, tables
from berth.up.examples import Applying, told

Object = dict[str, Any]
CRDS = Resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False)
NAMESPACES = Resource("", "v1", "Namespace", "namespaces", False)
START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs, for the closing words."""

    kubeconfig: Path
    kubectl: Path
    api: str
    log_file: Path
    left_out: list[str]  # a sentence for each example that could not be applied


async def up(console: Console) -> None:
    """Until cancelled."""
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(_home()))
        log_file = home / "berth.log"
        with explained(str(log_file)):
            log.configure("info", stack.enter_context(log_file.open("w", buffering=1)))
        display = stack.enter_context(ExitStack())
        bar = display.enter_context(Bar(console))
        binaries, crds = await _prepare(console, bar)
        bar(Step("starting etcd and kube-apiserver"))
        cluster = await stack.enter_async_context(DevCluster(binaries=binaries))
        client = await stack.enter_async_context(Client(auth.load(cluster.kubeconfig)))
        await _install(client, crds)
        for namespace in {name for dialect in DIALECTS for name in dialect.examples.namespaces}:
            await client.create(NAMESPACES, _namespace(namespace))
        old, asked = examples.sorted_out(examples.objects(examples.directory()))
        await Applying(client).all(old)
        async with asyncio.TaskGroup() as tasks:
            running: list[asyncio.Task[None]] = []
            bar(Step("starting the IPAM-API and the operator"))
            api = await _start_api(tasks, running, home)
            await _start_operator(tasks, running, cluster, api)
            bar(Step("applying the examples"))
            left_out = await Applying(client).all(asked)
            await examples.settled(client)
            display.close()  # before the tables
            kubectl = Path(cluster.binaries["kubectl"])
            await tables.show(console, client, Stage(cluster.kubeconfig, kubectl, api, log_file, left_out))
            try:
                await asyncio.Event().wait()
            finally:
                for task in running:
                    task.cancel()


async def up_api_only(console: Console, listen: str) -> None:
    """Just the IPAM-API, in seconds, on SQLite in a temporary directory."""
    with _home() as home:
        log.configure("warning")
        settings = ApiSettings(listen=listen, database=f"sqlite:///{home}/berth.db")
        await serve(settings, lambda url: tables.show_api(console, url))


def _home() -> tempfile.TemporaryDirectory[str]:
    with explained("a temporary directory (TMPDIR)"):
        return tempfile.TemporaryDirectory(prefix="berth-up-")


@asynccontextmanager
async def _in_time(what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(START_SECONDS):
            yield
    except TimeoutError as error:
        raise UserError(
            f"{what} within {START_SECONDS:.0f} s: try again when the machine is less busy"
        ) from error


async def _prepare(console: Console, bar: Bar) -> tuple[Binaries, list[Object]]:
    binaries = await Binaries.prepare(list(CORE), bar)
    foreign: list[Path] = []
    try:
        await prepare_cluster_api_crds(bar)
        foreign = cluster_api_crds()
    except UserError as error:
        console.print(f"Cluster API's kinds are left out: {error}")
    own = [crd for dialect in DIALECTS for crd in dialect.crds()]
    return binaries, [*own, *(_plain(crd) for path in foreign for crd in examples.read(path))]


def _plain(crd: Object) -> Object:
    crd["spec"].pop("conversion", None)  # Cluster API's own webhook is not here to convert
    return crd


async def _install(client: Client, crds: list[Object]) -> None:
    for crd in crds:
        try:
            await client.create(CRDS, crd)
        except AlreadyExists:
            continue
    async with _in_time("the API server did not serve the CRDs"):
        for crd in crds:
            while not await _is_served(client, crd["metadata"]["name"]):  # noqa: ASYNC110 - the server's state
                await asyncio.sleep(0.05)


def _namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


async def _is_served(client: Client, name: str) -> bool:
    found = await client.get(CRDS, name)
    conditions = (found.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


async def _start_api(tasks: asyncio.TaskGroup, running: list[asyncio.Task[None]], home: Path) -> str:
    settings = ApiSettings(listen="127.0.0.1:0", database=f"sqlite:///{home}/berth.db", sweep_seconds=5.0)
    return await _told(tasks, running, lambda tell: serve(settings, tell))


async def _start_operator(
    tasks: asyncio.TaskGroup, running: list[asyncio.Task[None]], cluster: DevCluster, api: str
) -> None:
    settings = Settings(
        kubeconfig=cluster.kubeconfig,
        dialects=tuple(dialect.name for dialect in DIALECTS),
        webhook_url=f"https://127.0.0.1:{ports.free(1)[0]}",
        parts=told(f"{api}/v2"),
    )
    await _told(tasks, running, lambda tell: operate(settings, lambda listening: tell("")))


async def _told(
    tasks: asyncio.TaskGroup,
    running: list[asyncio.Task[None]],
    start: Callable[[Callable[[str], None]], Any],
) -> str:
    """Start something that says when it listens, and wait for that; if it ends instead, so do we."""
    said: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = tasks.create_task(start(lambda text: None if said.done() else said.set_result(text)))
    running.append(task)
    async with _in_time("the IPAM-API or the operator did not listen"):
        await asyncio.wait([task, said], return_when=asyncio.FIRST_COMPLETED)
    if not said.done():
        await task
    return said.result()
