"""Fixtures every test may ask for. Those on the real control plane start it once per worker, on first use.

`make test` gives what failed beside others a second run alone, with the same seed: a busy machine can make it
late. A broken promise is no matter of time: a failure that names I1, I3, I5 or I6 ends the run with a code of
its own.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.cluster import Kubectl, drop_namespace, make_namespace
from tests.support.postgres import PostgresServer, short_folder

from berth.devcluster import DevCluster

BROKEN = re.compile(r"^E .*\bI[1356]: ", re.MULTILINE)  # what failed, not the code around it
BROKEN_PROMISE = 10  # pytest's own codes end at 5
_broken: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    planted = "planted" in report.nodeid  # broken on purpose; it fails when nobody noticed in time
    if report.failed and not planted and BROKEN.search(report.longreprtext):
        _broken.append(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _broken and not hasattr(session.config, "workerinput"):
        session.exitstatus = BROKEN_PROMISE


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="repeat a run of the fault bench")


def pytest_configure(config: pytest.Config) -> None:
    """One seed a run, for all workers: `--seed`, BERTH_SEED, that of the run whose failures are repeated, or
    any.
    """
    if hasattr(config, "workerinput"):
        config.option.seed = config.workerinput["seed"]
    if config.option.seed is not None:
        return
    cache = getattr(config, "cache", None)
    told = os.environ.get("BERTH_SEED")
    if not told and cache is not None and config.getoption("lf", False):
        told = cache.get("berth/seed", None)
    config.option.seed = int(told or secrets.randbelow(1 << 32))
    if cache is not None:
        cache.set("berth/seed", config.option.seed)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker of pytest-xdist is about to start."""
    node.workerinput["seed"] = node.config.option.seed


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed {config.option.seed}: repeat with --seed"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.option.seed)


@pytest.fixture
def tried(request: pytest.FixtureRequest) -> Callable[[int], None]:
    """How often a row of the fault bench really tried: a long run adds this up (tests/faults/beside.py)."""

    def note(number: int) -> None:
        request.node.user_properties.append(("tried", number))

    return note


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster() -> AsyncIterator[DevCluster]:
    """Shared: a test that kills or restarts parts of it waits until they serve again."""
    async with DevCluster() as shared:
        yield shared


@pytest.fixture
def kubectl(cluster: DevCluster) -> Kubectl:
    return Kubectl(cluster)


@pytest_asyncio.fixture
async def namespace(cluster: DevCluster) -> AsyncIterator[str]:
    """The name of a namespace of this test's own."""
    name = await make_namespace(cluster)
    yield name
    await drop_namespace(cluster, name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for a worker's tests, a database of its own for each of them."""
    server = PostgresServer(short_folder())
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database: a test that asks for it runs on both stores."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/berth.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database()
