"""A real control plane: etcd and kube-apiserver on free loopback ports, ready in a few seconds.

    async with DevCluster() as cluster:
        ... cluster.kubeconfig ...

Any number run side by side. What one started dies with its owner, whatever ends the owner (launch.py).
Without a controller manager nothing collects garbage or finishes the deletion of a namespace; where a
test is about that, `start_controller_manager` runs the real one.

    owner ──starts──▶ etcd ◀──certificate── kube-apiserver ◀──kubeconfig── kubectl, operator, tests
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from berth.devcluster import commands, directory, kubeconfig, pki, ports
from berth.devcluster.binaries import Binaries
from berth.devcluster.commands import Plane, Ports
from berth.devcluster.endpoint import Endpoint, EndpointAnswer, context_for
from berth.devcluster.faults import StartFailed, explained
from berth.devcluster.process import Process

READY_SECONDS = 120.0
# Together below the ten seconds in which every command of ours stops.
GRACE_SECONDS = 2.5
RACES = 5


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How a cluster differs from the plain one."""

    directory: Path | None = None  # given: kept after stop and found again; None: a temporary one
    port: int = 0  # of the API server; 0 means any free one
    durable: bool = False  # etcd with fsync: for benchmarks, and data that is to outlive the machine
    authorization: str = "RBAC"
    apiserver_flags: tuple[str, ...] = ()


class DevCluster:
    """Starts, stops and breaks one control plane. Not bound to the event loop that started it."""

    def __init__(self, options: ClusterOptions | None = None, binaries: Binaries | None = None) -> None:
        self.options = options or ClusterOptions()
        self._given = binaries
        self._home: directory.Home | None = None
        self._plane: Plane | None = None
        self._etcd: Process | None = None
        self._apiserver: Process | None = None
        self._controller_manager: Process | None = None

    # What is running

    @property
    def directory(self) -> Path:
        return self._started().directory

    @property
    def kubeconfig(self) -> Path:
        return self._started().kubeconfig

    @property
    def api_url(self) -> str:
        return f"https://127.0.0.1:{self._started().ports.apiserver}"

    @property
    def binaries(self) -> Binaries:
        return self._started().binaries

    @property
    def etcd(self) -> Process:
        assert self._etcd
        return self._etcd

    @property
    def apiserver(self) -> Process:
        assert self._apiserver
        return self._apiserver

    def _started(self) -> Plane:
        if self._plane is None:
            raise RuntimeError("the cluster is not started")
        return self._plane

    async def request(self, method: str, path: str, body: object = None) -> EndpointAnswer:
        """One request as the administrator; for set-up and readiness, `kube.Client` is for work."""
        return await self._api().request(method, path, body)

    def _api(self) -> Endpoint:
        plane = self._started()
        return Endpoint(plane.ports.apiserver, context_for(plane.pki, "admin"))

    # From start to stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(keep_logs=isinstance(error, StartFailed))

    async def start(self) -> None:
        """Ready to serve when this returns; nothing is left running when it raises."""
        try:
            with explained("the dev cluster's directory"):
                binaries = self._given or Binaries.locate()
                self._home = directory.open_home(self.options.directory)
                certificates = pki.make(self._home.path / "pki")
            await self._start_with(binaries, certificates)
        except BaseException as error:
            await self.stop(keep_logs=isinstance(error, StartFailed))
            raise

    async def _start_with(self, binaries: Binaries, certificates: pki.Pki) -> None:
        assert self._home
        for race in range(1, RACES + 1):
            plane = Plane(binaries, self._home.path, certificates, self._choose_ports(race))
            try:
                await self._start_plane(plane)
                return
            except StartFailed as failure:
                await self._stop_processes()
                # Somebody else took a port between our look and the server's bind: other ports, again.
                if not failure.busy or self.options.port or race == RACES:
                    raise

    def _choose_ports(self, race: int) -> Ports:
        assert self._home
        chosen = self._home.last_ports() if race == 1 else None
        if chosen is None or not all(map(ports.is_free, chosen)):
            chosen = ports.free(4)
        numbers = Ports(*chosen)
        return replace(numbers, apiserver=ports.require(self.options.port)) if self.options.port else numbers

    async def _start_plane(self, plane: Plane) -> None:
        assert self._home
        self._plane = plane
        logs = self._home.logs
        with explained("the dev cluster's directory"):
            kubeconfig.write(plane.kubeconfig, plane.pki, self.api_url)
        self._etcd = Process(commands.etcd(plane, durable=self.options.durable), logs / "etcd.log")
        self._apiserver = Process(
            commands.apiserver(
                plane, authorization=self.options.authorization, more=self.options.apiserver_flags
            ),
            logs / "kube-apiserver.log",
        )
        await self.start_etcd()
        await self.start_apiserver()
        self._home.remember(plane.ports)

    async def stop(self, *, keep_logs: bool = False) -> None:
        """In order, within ten seconds; a temporary directory goes too. Twice is fine."""
        await self._stop_processes()
        if self._home:
            self._home.close(keep_logs=keep_logs)
            self._home = None

    async def _stop_processes(self) -> None:
        for process in (self._controller_manager, self._apiserver, self._etcd):
            if process:
                await process.stop(GRACE_SECONDS)

    # One part at a time

    async def start_etcd(self) -> None:
        plane = self._started()
        endpoint = Endpoint(plane.ports.etcd, context_for(plane.pki, "etcd-client"))
        self.etcd.start()
        await self.etcd.ready(lambda: endpoint.answers("/readyz"), READY_SECONDS)

    async def start_apiserver(self) -> None:
        self.apiserver.start()
        await self.wait_ready()

    async def wait_ready(self) -> None:
        """Ready, and past the first start: the `default` namespace is made a moment after /readyz."""
        api = self._api()
        await self.apiserver.ready(lambda: api.answers("/readyz"), READY_SECONDS)
        await self.apiserver.ready(lambda: api.answers("/api/v1/namespaces/default"), READY_SECONDS)

    async def restart_apiserver(self, *, kill: bool = True) -> None:
        await self._halt(self.apiserver, kill)
        await self.start_apiserver()

    async def restart_etcd(self, *, kill: bool = True) -> None:
        await self._halt(self.etcd, kill)
        await self.start_etcd()
        await self.wait_ready()

    async def _halt(self, process: Process, kill: bool) -> None:
        await (process.kill() if kill else process.stop(GRACE_SECONDS))

    async def start_controller_manager(
        self, controllers: str = "namespace-controller,garbage-collector-controller"
    ) -> Process:
        plane = self._started()
        command = commands.controller_manager(plane, controllers=controllers)
        process = Process(command, plane.directory / "logs" / "kube-controller-manager.log")
        endpoint = Endpoint(plane.ports.controller_manager, context_for(plane.pki, "admin"))
        self._controller_manager = process
        process.start()
        await process.ready(lambda: endpoint.answers("/healthz"), READY_SECONDS)
        return process

    # The past, for fault tests

    async def save_etcd(self) -> Path:
        """A copy of etcd's data as it is now; etcd is away for the second that takes."""
        copy = self.directory / f"etcd-saved-{len(list(self.directory.glob('etcd-saved-*')))}"
        await self.etcd.kill()
        await asyncio.to_thread(shutil.copytree, self._started().etcd_data, copy)
        await self.start_etcd()
        await self.wait_ready()
        return copy

    async def restore_etcd(self, saved: Path) -> None:
        """Back to the copy. Revisions go back with it, as after a restore from a backup."""
        data = self._started().etcd_data
        await self.apiserver.kill()
        await self.etcd.kill()
        await asyncio.to_thread(shutil.rmtree, data)
        await asyncio.to_thread(shutil.copytree, saved, data)
        await self.start_etcd()
        await self.start_apiserver()

    async def compact_etcd(self) -> None:
        """Nothing older than now is known any more: etcd forgets, and the API server starts anew."""
        plane = self._started()
        etcd = Endpoint(plane.ports.etcd, context_for(plane.pki, "etcd-client"))
        present = await etcd.request("POST", "/v3/kv/range", {"key": "AA==", "limit": 1})
        oldest = {"revision": present.json()["header"]["revision"], "physical": True}
        answer = await etcd.request("POST", "/v3/kv/compaction", oldest)
        if not answer.ok:
            raise RuntimeError(f"etcd did not compact: {answer.text}")
        await self.restart_apiserver()
