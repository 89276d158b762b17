"""leader, as real processes on the real API server: a stopped and continued leader writes nothing more."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from tests.faults.stage import load_of_machine
from tests.support.elected_writer import CONFIG_MAPS, LOST
from tests.support.eventually import eventually

from berth.control.leader import LEASES
from berth.devcluster import DevCluster
from berth.kube import auth
from berth.kube.client import Client

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]

PATIENCE_SECONDS = 60.0
ROOT = Path(__file__).resolve().parents[2]
# Longer where the machine is busy: a leader that gets no turn loses its lease, and rightly so.
LEASE_SECONDS = 3.0 * max(1.0, load_of_machine() / 2)
# A busy machine starts and schedules slowly; the bound on a takeover itself is 1.5 leases.
SLACK_SECONDS = LEASE_SECONDS


@dataclass(frozen=True, slots=True)
class Writer:
    """A running tests.support.elected_writer."""

    name: str
    process: asyncio.subprocess.Process

    async def says(self, text: str) -> None:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = await self.process.stdout.readline()
        assert line.decode().strip() == text

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ends(self) -> int:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.process.wait()


@dataclass(frozen=True, slots=True)
class Stage:
    cluster: DevCluster
    namespace: str
    client: Client

    @asynccontextmanager
    async def writer(self, name: str, lease_seconds: float = LEASE_SECONDS) -> AsyncIterator[Writer]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.elected_writer"),
            *(str(self.cluster.kubeconfig), self.namespace, name, str(lease_seconds)),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield Writer(name, process)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def written_by(self, writer: Writer) -> set[str]:
        found = (await self.client.list(CONFIG_MAPS, self.namespace)).items
        names = {obj["metadata"]["name"] for obj in found}
        return {name for name in names if name.startswith(f"{writer.name}-")}

    async def has_written(self, writer: Writer, more_than: int) -> None:
        async def enough() -> bool:
            return len(await self.written_by(writer)) > more_than

        await eventually(enough, PATIENCE_SECONDS)

    async def holder(self) -> str:
        lease = await self.client.get(LEASES, "writer", self.namespace)
        return str(lease["spec"].get("holderIdentity", ""))


@pytest_asyncio.fixture(loop_scope="session")
async def stage(cluster: DevCluster, namespace: str) -> AsyncIterator[Stage]:
    async with Client(auth.load(cluster.kubeconfig)) as client:
        yield Stage(cluster, namespace, client)


async def is_stopped(writer: Writer) -> None:
    async def look() -> bool:
        return process_state(writer.process.pid) == "T"

    await eventually(look)


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_a_leader_stopped_past_its_lease_and_continued_writes_nothing_more(stage: Stage) -> None:
    async with stage.writer("old") as old:
        await old.says("leading")
        async with stage.writer("new") as new:
            await stage.has_written(old, 3)
            old.send(signal.SIGUSR1)
            await is_stopped(old)
            stopped_at = time.monotonic()
            await new.says("leading")
            assert time.monotonic() - stopped_at <= 1.5 * LEASE_SECONDS + SLACK_SECONDS
            await stage.has_written(new, 3)
            before = await stage.written_by(old)
            old.send(signal.SIGCONT)
            await old.says("write refused")
            assert await old.ends() == LOST
            assert await stage.written_by(old) == before
            assert await stage.holder() == "new"
            await stage.has_written(new, len(await stage.written_by(new)))


async def test_a_clean_stop_empties_the_lease_and_the_next_leads_at_once(stage: Stage) -> None:
    long = 30.0
    async with stage.writer("old", long) as old:
        await old.says("leading")
        async with stage.writer("new", long) as new:
            await stage.has_written(old, 1)
            old.send(signal.SIGTERM)
            assert await old.ends() == 0
            stopped_at = time.monotonic()
            await new.says("leading")
            assert time.monotonic() - stopped_at < long / 2  # far less than the lease had left
            new.send(signal.SIGTERM)
            assert await new.ends() == 0
    assert await stage.holder() == ""


async def test_a_killed_leader_is_succeeded_when_its_lease_has_run_out(stage: Stage) -> None:
    async with stage.writer("old") as old:
        await old.says("leading")
        async with stage.writer("new") as new:
            await stage.has_written(old, 1)
            old.send(signal.SIGKILL)
            await old.ends()
            killed_at = time.monotonic()
            await new.says("leading")
            assert time.monotonic() - killed_at <= 1.5 * LEASE_SECONDS + SLACK_SECONDS
