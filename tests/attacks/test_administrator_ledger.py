"""What an administrator does to the ledger itself: another's pepper, half a backup, a clock that is ahead, a
dump of anything, a database that others can read or start on. Each is refused in a sentence, or does no harm.
"""

from __future__ import annotations

import gzip
import json
import math
import secrets
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import pytest_asyncio
from tests.support.central import World, request_body, running
from tests.support.ledger import Run, ledger_commands
from tests.support.mongo import KEY, START, document, dump, element, exported, service, text
from tests.support.postgres import PostgresServer
from tests.support.started import ApiProcess, api_process

from berth.leasing.holders import DAY_MS, NAME_LIMIT
from berth.store.clock_guard import SETTLE_MS, ClockGuard
from berth.store.sweep import Sweeper

A = "83.118.168.10"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Run]:
    with ledger_commands(f"sqlite:///{tmp_path}/berth.db", tmp_path / "berth.db.pepper") as run:
        yield run


def stored(ledger: Run, **where: str) -> list[str]:
    return [one["address"] for one in ledger("list", "--json", **where).json]


async def register(api: ApiProcess, name: str = "x") -> int:
    body = request_body(name, address=A)
    async with (
        aiohttp.ClientSession() as session,
        session.post(api.url + "/v2/address", json=body) as response,
    ):
        return response.status


def refused(folder: Path, *flags: str) -> str:
    """The sentence of a server that does not start."""
    with (
        pytest.raises(AssertionError, match="did not start: berth: ") as raised,
        api_process(folder, *flags),
    ):
        pass
    return str(raised.value)


def write_pepper(file: Path, key_id: str = "") -> None:
    file.unlink(missing_ok=True)
    file.touch(0o600)
    file.write_text(f"{key_id or 'k' + secrets.token_hex(4)}:{secrets.token_hex(32)}\n")


def write_key(folder: Path) -> Path:
    file = folder / "key.json"
    file.write_text(json.dumps({"enc_key": KEY.decode(), "enc_iv": START.decode()}))
    return file


# Peppers


@pytest.mark.parametrize("same_id", [False, True], ids=["another key", "the same id, other bytes"])
async def test_starting_on_a_ledger_with_another_ones_pepper(tmp_path: Path, same_id: bool) -> None:
    """Every owner would be told that there is no such address; instead nothing starts, and with the right
    file all is as before.
    """
    pepper, kept = tmp_path / "berth.db.pepper", tmp_path / "kept"
    with api_process(tmp_path) as api:
        assert await register(api) == 200
    pepper.rename(kept)
    assert "is missing" in refused(tmp_path), "it is not made for a ledger that has addresses"
    assert not pepper.exists()
    write_pepper(pepper, kept.read_text().partition(":")[0] if same_id else "")
    said = refused(tmp_path)
    assert "is not the one" in said
    assert kept.read_text().partition(":")[0] in said, "which key is wanted"
    kept.replace(pepper)
    with api_process(tmp_path) as api:
        assert await register(api) == 200


@pytest.mark.parametrize("file", ["none", "another key", "the same id, other bytes"])
async def test_importing_with_another_ledgers_pepper(tmp_path: Path, ledger: Run, file: str) -> None:
    """What it would seal nobody could open, and a pepper it would make fits nothing that is there."""
    with api_process(tmp_path) as api:
        assert await register(api) == 200
    records, other = tmp_path / "addresses.bson", tmp_path / "other.pepper"
    records.write_bytes(dump("83.118.168.11/32"))
    if file != "none":
        own = (tmp_path / "berth.db.pepper").read_text().partition(":")[0]
        write_pepper(other, own if file == "the same id, other bytes" else "")
    command = ("import-mongo", str(records), "--key-file", str(write_key(tmp_path)))
    outcome = ledger(*command, pepper=other)
    assert (outcome.code, "pepper file" in outcome.err) == (1, True)
    assert stored(ledger) == [A + "/32"]
    assert other.exists() == (file != "none")
    assert ledger(*command).code == 0
    assert len(stored(ledger)) == 2


@pytest.mark.postgres
async def test_two_servers_with_peppers_of_their_own_on_one_empty_postgresql(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """Each would lock the other's owners out; the second does not start, on the first day as ever after."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    database = ("--database", postgres.database())
    with api_process(one, *database) as api:
        write_pepper(two / "berth.pepper")
        assert "all servers need the same file" in refused(two, *database)
        assert await register(api) == 200
        assert "is not the one" in refused(two, *database)
        (two / "berth.pepper").write_text((one / "berth.pepper").read_text())
        with api_process(two, *database) as second:
            assert await register(second) == 200


# Restores


@pytest_asyncio.fixture
async def backup(tmp_path: Path) -> AsyncIterator[list[bytes]]:
    """The lines of a backup of three addresses."""
    database, pepper = f"sqlite:///{tmp_path}/source.db", tmp_path / "source.pepper"
    async with running(database, pepper) as world:
        for name in ("a", "b", "c"):
            await world.post(name)
        with ledger_commands(database, pepper) as run:
            assert run("backup", "--out", str(tmp_path / "whole.jsonl")).code == 0
            assert run("export", "--out", str(tmp_path / "export.jsonl")).code == 0
    yield (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)


def restore(ledger: Run, folder: Path, lines: list[bytes], *flags: str) -> tuple[int, str]:
    file = folder / "given.jsonl"
    file.write_bytes(b"".join(lines))
    outcome = ledger("restore", "--from", str(file), *flags)
    assert "Traceback" not in outcome.err
    return outcome.code, outcome.err


async def test_restoring_a_backup_that_is_cut_at_a_lines_end(
    tmp_path: Path, ledger: Run, backup: list[bytes]
) -> None:
    """Wherever it is cut nothing is restored, since what is missing would be given out again; then the whole
    one is.
    """
    for count in range(len(backup)):
        code, said = restore(ledger, tmp_path, backup[:count])
        assert (code, "no last line" in said or "is empty" in said) == (1, True)
        assert stored(ledger) == []
    assert restore(ledger, tmp_path, backup) == (0, "")
    assert len(stored(ledger)) == 3


async def test_restoring_a_packed_backup_that_is_cut_anywhere(
    tmp_path: Path, ledger: Run, backup: list[bytes]
) -> None:
    packed = gzip.compress(b"".join(backup))
    file = tmp_path / "given.jsonl.gz"
    for length in range(0, len(packed), 150):
        file.write_bytes(packed[:length])
        assert ledger("restore", "--from", str(file)).code == 1
        assert stored(ledger) == []


def _lost(lines: list[bytes]) -> list[bytes]:
    return [lines[0], *lines[2:]]


def _moved(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[2], lines[1], *lines[3:]]


def _bad(lines: list[bytes]) -> list[bytes]:
    return [*lines[:3], b"{not json\n", *lines[4:]]


def _shortened(lines: list[bytes]) -> list[bytes]:
    return [*lines[:-2], lines[-2][: len(lines[-2]) // 2]]


def _more(lines: list[bytes]) -> list[bytes]:
    return [*lines, lines[1]]


def _other_holder(lines: list[bytes]) -> list[bytes]:
    line = orjson.loads(lines[1])
    line["holders"][0]["service_name"] = "somebody else"
    return [lines[0], orjson.dumps(line) + b"\n", *lines[2:]]


def _newer(lines: list[bytes]) -> list[bytes]:
    return [orjson.dumps(orjson.loads(lines[0]) | {"format": 2}) + b"\n", *lines[1:]]


@pytest.mark.parametrize("fault", [_lost, _moved, _bad, _shortened, _more, _other_holder, _newer])
async def test_restoring_a_backup_with_a_line_that_is_lost_moved_bad_or_changed(
    tmp_path: Path, ledger: Run, backup: list[bytes], fault: Callable[[list[bytes]], list[bytes]]
) -> None:
    """All of it or nothing: no part stays in place and keeps the good backup out."""
    code, said = restore(ledger, tmp_path, fault(backup))
    assert (code, "given.jsonl" in said) == (1, True)
    assert stored(ledger) == []
    assert restore(ledger, tmp_path, backup) == (0, "")


async def test_restoring_an_export(tmp_path: Path, ledger: Run, backup: list[bytes]) -> None:
    """It has no seals: nobody would own what it brings. Not with --allow-unproven either."""
    export = (tmp_path / "export.jsonl").read_bytes().splitlines(keepends=True)
    for flags in ([], ["--allow-unproven"]):
        code, said = restore(ledger, tmp_path, export, *flags)
        assert (code, "this is an export" in said) == (1, True)
        assert stored(ledger) == []


async def test_restoring_a_backup_of_an_older_version_which_has_no_last_line(
    tmp_path: Path, ledger: Run, backup: list[bytes]
) -> None:
    """Only when told so; what a last line says is believed all the same, and a bad line is still none."""
    for lines in (_bad(backup)[:-1], _lost(backup), _more(backup)):
        assert restore(ledger, tmp_path, lines, "--allow-unproven")[0] == 1
        assert stored(ledger) == []
    assert "--allow-unproven" in restore(ledger, tmp_path, backup[:-1])[1]
    assert restore(ledger, tmp_path, backup[:-1], "--allow-unproven") == (0, "")
    assert len(stored(ledger)) == 3


# Clocks


class Machine:
    """A server after another boot: what its kernel counts and says."""

    def __init__(self, world: World) -> None:
        self.synchronised = False
        self._started_ms = world.clock.shift_ms
        self._world = world
        guard = ClockGuard(self._elapsed_ms, "another boot", lambda: self.synchronised)
        self._sweeper = Sweeper(world.ledger, guard, "another boot", lease_ms=0)

    def _elapsed_ms(self) -> int:
        return 5000 + self._world.clock.shift_ms - self._started_ms

    async def frees(self) -> int:
        swept = await self._sweeper.sweep()
        assert not swept.held_back
        return swept.addresses


@pytest_asyncio.fixture
async def rebooted(tmp_path: Path) -> AsyncIterator[tuple[World, Machine]]:
    """An address is kept for seven days; its server comes back from a boot with a clock eight days ahead."""
    async with running(f"sqlite:///{tmp_path}/berth.db", tmp_path / "berth.db.pepper") as world:
        world.sweeper = Sweeper(world.ledger, world.sweeper.guard, "before", lease_ms=0)
        await world.post("x", address=A)
        await world.delete("x", address=A, retention=7)
        await world.sweep()
        world.clock.shift_ms += 8 * DAY_MS
        yield world, Machine(world)


async def test_a_clock_that_is_ahead_after_a_boot_ends_no_retention(rebooted: tuple[World, Machine]) -> None:
    """However long it stays wrong, the seven days are counted by what really passes."""
    world, machine = rebooted
    for _ in range(6):
        assert await machine.frees() == 0
        world.advance(days=1)
    assert await machine.frees() == 0
    world.advance(days=1.1)
    assert await machine.frees() == 1


async def test_a_clock_that_is_called_synchronised_is_believed_after_five_minutes(
    rebooted: tuple[World, Machine],
) -> None:
    """The machine really was off for eight days; not at once, since a daemon may still step it."""
    world, machine = rebooted
    machine.synchronised = True
    assert await machine.frees() == 0
    world.advance(seconds=SETTLE_MS / 1000 - 1)
    assert await machine.frees() == 0
    machine.synchronised = False
    assert await machine.frees() == 0
    machine.synchronised = True
    world.advance(seconds=2)
    assert await machine.frees() == 0, "it was interrupted"
    world.advance(seconds=SETTLE_MS / 1000)
    assert await machine.frees() == 1


async def test_a_clock_that_a_person_accepts_is_believed_at_once(
    rebooted: tuple[World, Machine], ledger: Run
) -> None:
    _, machine = rebooted
    assert await machine.frees() == 0
    assert ledger("accept-clock").code == 0
    assert await machine.frees() == 1


# Dumps


def _retention(kind: int, raw: bytes) -> bytes:
    return service("x", element(kind, "retention_period_days", raw))


def _nested(depth: int) -> bytes:
    inner = document()
    for _ in range(depth):
        inner = document(element(3, "d", inner))
    return service("x", element(3, "deep", inner))


HOSTILE = {
    "retention of -5 days": _retention(0x10, struct.pack("<i", -5)),
    "retention of 2^62 days": _retention(0x12, struct.pack("<q", 2**62)),
    "retention without end": _retention(1, struct.pack("<d", math.inf)),
    "retention that is no number": _retention(1, struct.pack("<d", math.nan)),
    "retention of half a day": _retention(1, struct.pack("<d", 0.5)),
    "no name": service(""),
    "a long name": service("x" * (NAME_LIMIT + 1)),
    "600 characters": service("x" * 600),
    "a control character": service("x\n"),
    "a far date": service("x", element(9, "expires_at", struct.pack("<q", 2**62))),
    "a date before time": service("x", element(9, "expires_at", struct.pack("<q", -(2**62)))),
    "a date that is a number": service("x", element(1, "expires_at", struct.pack("<d", math.inf))),
    "deep nesting": _nested(30),
    "nesting without end": _nested(2000),
    "a type nobody knows": service("x", element(0x7F, "odd", b"")),
    "no text": service("x", element(2, "cluster_id", struct.pack("<i", 3) + b"\xff\xfe\0")),
    "a service that is none": text("x"),
}


def test_importing_a_dump_with_records_that_no_ledger_would_have_written(tmp_path: Path, ledger: Run) -> None:
    """Each is left out and told by its number, the others come in, and nothing ends in a traceback."""
    hostile = [dump(f"83.118.169.{number}/32", one) for number, one in enumerate(HOSTILE.values())]
    good = [dump(f"83.118.168.{number}/32") for number in range(len(hostile) + 1)]
    mixed = [good[0], *(part for pair in zip(hostile, good[1:], strict=True) for part in pair)]
    file = tmp_path / "addresses.bson"
    file.write_bytes(b"".join(mixed))
    outcome = ledger("import-mongo", str(file), "--key-file", str(write_key(tmp_path)))
    assert outcome.code == 1
    assert outcome.out == f"Imported {len(good)} addresses, 0 were there already\n"
    assert f"{len(hostile)} records are no addresses of ours: record 2 (" in outcome.err
    assert "x" * 100 not in outcome.err
    assert sorted(stored(ledger)) == sorted(f"83.118.168.{number}/32" for number in range(len(good)))


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_importing_a_dump_of_one_hostile_record(tmp_path: Path, ledger: Run, hostile: bytes) -> None:
    file = tmp_path / "addresses.bson"
    file.write_bytes(dump(A, hostile))
    outcome = ledger("import-mongo", str(file), "--key-file", str(write_key(tmp_path)))
    assert (outcome.code, "record 1 (" in outcome.err) == (1, True)
    assert len(outcome.err) < 400
    assert stored(ledger) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"retention_period_days": {"$numberDouble": "Infinity"}},
        {"retention_period_days": {"$numberLong": str(2**62)}},
        {"expires_at": {"$date": {"$numberLong": str(2**62)}}},
        {"expires_at": {"$date": "9999-99-99"}},
        {"service_name": {"$oid": "x"}, "namespace_id": []},
    ],
)
def test_importing_lines_of_mongoexport_with_a_hostile_one(
    tmp_path: Path, ledger: Run, changes: dict[str, Any]
) -> None:
    line = json.loads(exported(A))
    line["services"] = [line["services"][0] | changes]
    file = tmp_path / "addresses.json"
    file.write_text(json.dumps(line) + "\n" + exported("83.118.168.11"))
    outcome = ledger("import-mongo", str(file), "--key-file", str(write_key(tmp_path)))
    assert (outcome.code, "record 1 (" in outcome.err) == (1, True)
    assert stored(ledger) == ["83.118.168.11/32"]


# Files


def mode(file: Path) -> int:
    return file.stat().st_mode & 0o777


async def test_reading_the_database_or_splunks_queue_as_another_user(tmp_path: Path) -> None:
    """They say who has which address: only their owner reads them, with all that SQLite puts beside them,
    also where a version before made them for everybody.
    """
    (tmp_path / "token").write_text("t")
    queue = ("--splunk-url", "http://127.0.0.1:1", "--splunk-token-file", "token", "--splunk-index", "i")
    for _ in range(2):
        with api_process(tmp_path, *queue) as api:
            assert await register(api) == 200
            files = [
                *(tmp_path / f"berth.db{end}" for end in ("", "-wal", "-shm", ".pepper", ".lock")),
                *(tmp_path / f"berth-splunk-queue.db{end}" for end in ("", "-wal", "-shm")),
            ]
            assert {one.name: oct(mode(one)) for one in files} == {one.name: "0o600" for one in files}
            api.kill()
        for one in files[:3] + files[-3:]:
            one.chmod(0o644)


def test_starting_a_second_server_by_a_symbolic_link(tmp_path: Path) -> None:
    """By a link to the file, or to its folder."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to("real/berth.db")
    (tmp_path / "folder").symlink_to("real")
    with api_process(tmp_path, "--database", "sqlite:///real/berth.db"):
        for path in ("link.db", "folder/berth.db", "real/../real/berth.db"):
            assert f"Another server uses {path}" in refused(tmp_path, "--database", f"sqlite:///{path}")


def test_starting_a_second_server_by_a_hard_link(tmp_path: Path) -> None:
    """Refused by either name, since each would have a log of its own; a server that runs is left alone."""
    with api_process(tmp_path) as api:
        (tmp_path / "other.db").hardlink_to(tmp_path / "berth.db")
        said = refused(tmp_path, "--database", "sqlite:///other.db", "--pepper-file", "berth.db.pepper")
        assert "more than one name" in said
        assert api.process.poll() is None
    assert "more than one name" in refused(tmp_path)
    (tmp_path / "other.db").unlink()
    with api_process(tmp_path):
        pass
