"""Builds the IPAM-API and runs it until it is told to stop: one place, everything passed in the open, one
task group. Zones, identities, tokens and TLS files are read again when they change (reload.py).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from berth import log
from berth.central.app import Config, IpamApi
from berth.central.backups import Backups
from berth.central.identity import load_identities, load_tokens
from berth.central.integrations import Integrations, for_good
from berth.central.listen import address_of, bind, listening, tls_context
from berth.central.metrics import ApiMetrics
from berth.central.reload import Reloader, contents_of, files_of
from berth.central.settings import ApiSettings, refuse_half
from berth.central.sweep import sweep_forever
from berth.central.zones import load_zones
from berth.errors import StoreDown, UserError
from berth.store.clock_guard import ClockGuard
from berth.store.engine import Engine, Standby, UtcClock, connect, sqlite_path, without_password
from berth.store.ledger import Ledger
from berth.store.migrate import migrate
from berth.store.pepper import fitting_pepper
from berth.store.settlement import LedgerRules
from berth.store.sweep import Sweeper

GRANT = "`GRANT pg_monitor TO` the role of --database"


async def serve(settings: ApiSettings, announce: Callable[[str], None]) -> None:
    """Run until cancelled; then finish the requests under way, at most for a few seconds."""
    refuse_half(settings)
    async with AsyncExitStack() as stack:
        bound = bind(settings.listen)
        stack.callback(bound.close)
        seen = {name: contents_of(paths) for name, paths in files_of(settings).items()}
        config = read_config(settings)
        context = tls_context(settings.tls)
        engine = await stack.enter_async_context(open_engine(settings))
        pepper = await fitting_pepper(engine, pepper_path(settings.database, settings.pepper_file))
        pending_ms = round(settings.pending_seconds * 1000)
        rules = LedgerRules(pepper, pending_ms, bool(settings.netbox.url), settings.limits.quota)
        ledger = await stack.enter_async_context(Ledger.open(engine, rules, config.zones.pools))
        metrics = ApiMetrics()
        neighbours = await stack.enter_async_context(Integrations.open(settings, metrics))
        api = IpamApi(ledger, config, settings.limits, metrics, neighbours.journal)
        sweeper = _sweeper(settings, ledger)
        stack.push_async_callback(leave_leases, sweeper)
        hangup = asyncio.Event()
        work = await neighbours.work(ledger, sweeper.who)
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(sweep_forever(sweeper, settings.sweep_seconds, metrics, api.journal)),
                tasks.create_task(for_good(api.heartbeats.run, api.journal)),
                *(tasks.create_task(one) for one in work),
                *(tasks.create_task(one) for one in _backups(settings, ledger, sweeper.who, api)),
            ]
            async with listening(api, bound, settings.limits, context) as port:
                reloader = Reloader(settings, seen, api, port)
                background.append(tasks.create_task(reloader.reload_forever(hangup)))
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hangup.set)
                announce(address_of(bound, settings.tls))
                api.journal.tell("started", "central/serve")
                try:
                    await asyncio.get_running_loop().create_future()
                finally:
                    api.journal.tell("stopping", "central/serve")
                    asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
                    for task in background:
                        task.cancel()


def read_config(settings: ApiSettings) -> Config:
    zones = load_zones(settings.zones)
    return Config(zones, load_tokens(settings.cluster_token_file), load_identities(settings.identities))


@asynccontextmanager
async def open_engine(settings: ApiSettings, clock: UtcClock | None = None) -> AsyncIterator[Engine]:
    """The database, migrated; SQLite only for one server at a time."""
    async with AsyncExitStack() as stack:
        if not settings.database.startswith("postgres"):
            only_server(sqlite_path(settings.database), stack)
        engine = await connect(settings.database, clock)
        stack.push_async_callback(engine.close)
        try:
            await migrate(engine)
        except StoreDown as cause:
            where = without_password(settings.database)
            raise UserError(f"The database {where} cannot be used: {cause}.") from cause
        await refuse_lagging(settings, engine)
        yield engine


async def refuse_lagging(settings: ApiSettings, engine: Engine) -> None:
    """What was answered must survive a failover, so commits have to wait for the standby."""
    standby = await engine.standby()
    if standby is Standby.HIDDEN and settings.allow_async_standby:
        log.get("berth.serve").warning("what follows the database is hidden from our role", hint=GRANT)
    elif standby is Standby.HIDDEN:
        raise UserError(
            "Something follows the database that no commit waits for, and this role may not see whether it "
            f"is a standby. Run {GRANT}, or set synchronous_standby_names, or accept with "
            "--allow-async-standby that a failover may lose addresses."
        )
    elif standby is Standby.LAGGING and not settings.allow_async_standby:
        raise UserError(
            "The database has a standby that no commit waits for: a failover would lose addresses that were "
            "given out. Set synchronous_standby_names, or accept that with --allow-async-standby."
        )


def only_server(path: Path, stack: AsyncExitStack) -> None:
    """SQLite has one writing server: the lock goes with the process, however that ends. It is beside the
    file itself, whichever links lead there; a file with two names has two write-ahead logs and is refused.
    """
    if path.exists() and path.stat().st_nlink > 1:
        raise UserError(
            f"The database {path} has more than one name (hard links), and under the other one a second "
            "server would not notice this one; keep one name."
        )
    try:
        lock = os.open(f"{os.path.realpath(path)}.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as cause:
        raise UserError(f"Another server uses {path}; for several use PostgreSQL.") from cause
    except OSError as cause:
        raise UserError(f"The database {path} cannot be opened: {cause.strerror}.") from cause


def pepper_path(database: str, given: Path | None) -> Path:
    if given is not None:
        return given
    if database.startswith("postgres"):
        return Path("berth.pepper")
    return Path(f"{sqlite_path(database)}.pepper")


def _sweeper(settings: ApiSettings, ledger: Ledger) -> Sweeper:
    lease_ms = round(max(3 * settings.sweep_seconds, 5.0) * 1000)
    who = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    return Sweeper(ledger, ClockGuard(), who, lease_ms, settings.history_days * 24 * 3600 * 1000)


def _backups(
    settings: ApiSettings, ledger: Ledger, who: str, api: IpamApi
) -> Iterator[Coroutine[Any, Any, None]]:
    backup = settings.backup
    if backup.every_seconds and backup.folder is not None:
        where = (backup.folder, settings.database, ledger.engine)
        yield Backups(backup, *where, api.metrics, api.journal, who).back_up_forever()


async def leave_leases(sweeper: Sweeper) -> None:
    """Another replica sweeps, and tells, at once; without a database, once our time is over."""
    with suppress(StoreDown, TimeoutError):
        async with asyncio.timeout(1):
            await sweeper.stop()
