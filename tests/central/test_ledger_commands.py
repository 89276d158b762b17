"""V-210 to V-219: `berth ledger` beside a running API, on both stores."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.central.faults.telling import report
from tests.support.central import CLUSTER, NAMESPACE, OTHER_SECRET, SECRET, World, request_body, running
from tests.support.ledger import Run, ledger_commands
from tests.support.started import neighbour

from berth.central.zones import load_zones
from berth.store import outbox
from berth.store.clock_guard import ClockGuard
from berth.store.engine import connect
from berth.store.sweep import Sweeper, Swept

Start = Callable[..., AbstractAsyncContextManager[World]]
A = "83.118.168.10/32"
V6 = "2a05:1234::ab"


@pytest.fixture
def ledger(database: str, tmp_path: Path) -> Iterator[Run]:
    with ledger_commands(database, tmp_path / "pepper") as run:
        yield run


def test_it_runs_as_a_process_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from berth.cli.ledger import app; app()", "list"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == "Error: there is no database berth.db; name it with --database.\n"


def test_v210_without_a_command_it_says_how_to_get_help(ledger: Run) -> None:
    """V-210"""
    assert ledger().out == "Use `berth ledger --help` to see available commands.\n"


def test_v211_a_missing_flag_is_named(ledger: Run) -> None:
    """V-211"""
    outcome = ledger("show-services", "--address", A)
    assert (outcome.code, outcome.err) == (1, 'Error: required flag(s) "zone" not set\n')


async def test_v212_one_address_as_json_and_text(world: World, ledger: Run) -> None:
    """V-212"""
    await world.post(address=A, retention=3, deny=True)
    shown = ledger("show-services", "--address", A, "--zone", "inet", "--format", "json").json
    assert set(shown) == {"secret", "zone", "ip_family", "address", "services"}
    assert shown["services"] == [
        {
            "service_name": "ingress_inet",
            "namespace_id": NAMESPACE,
            "cluster_id": CLUSTER,
            "retention_period_days": 3,
            "deny_external_cleanup": True,
        }
    ]
    text = ledger("show-services", "--address", "83.118.168.10", "--zone", "inet").out
    assert "- Service Name:\tingress_inet" in text
    assert SECRET not in text + str(shown)


async def test_v213_an_ipv6_address_is_found_without_its_mask(world: World, ledger: Run) -> None:
    """V-213: found; but a secret is never shown (DESIGN decision 8), so the exit code says it was not."""
    await world.post(ip_family="ipv6", address=V6)
    outcome = ledger("show-secret", "--address", "2A05:1234::00AB", "--zone", "inet")
    assert outcome.code == 3
    assert f"address '{V6}/128' in zone 'inet'" in outcome.err
    assert SECRET not in outcome.out + outcome.err


async def test_v214_an_unknown_address_is_an_error_with_exit_code_1(world: World, ledger: Run) -> None:
    """V-214"""
    outcome = ledger("show-secret", "--address", A, "--zone", "inet")
    assert outcome.code == 1
    assert outcome.err.startswith("Error: ")
    assert outcome.out == ""


async def test_v215_v216_one_service_is_ended_and_the_others_keep_their_flags(
    world: World, ledger: Run
) -> None:
    """V-215, V-216"""
    await world.post("x", address=A, retention=9)
    await world.post("y", address=A, deny=True)
    flags = ["--address", A, "--zone", "inet", "--service-name", "x", "--namespace-id", NAMESPACE]
    outcome = ledger("delete-service", *flags, "--cluster-id", CLUSTER)
    assert outcome.out == (
        f"Expiration set for service 'x' cluster id '{CLUSTER}' namespace id '{NAMESPACE}' on address '{A}'\n"
    )
    assert ledger("delete-service", *flags, "--cluster-id", "nobody").code == 1
    wrong = ledger("delete-service", *flags, "--cluster-id", CLUSTER, "--secret", OTHER_SECRET)
    assert wrong.code == 1
    await world.sweep()
    entries = await world.entries(A)
    assert (list(entries), entries["y"].deny) == (["y"], True)


async def test_v217_a_cluster_is_ended_and_who_denies_is_named(world: World, ledger: Run) -> None:
    """V-217"""
    await world.post("x", address=A, retention=9)
    await world.post("y", address=A, deny=True)
    outcome = ledger("delete-cluster", "--cluster", CLUSTER)
    assert f"Expiration set for addresses with cluster ID: {CLUSTER}" in outcome.out
    assert "Skipped service 'y'" in outcome.out
    async with world.ledger.engine.snapshot() as tx:
        now = await tx.now()
    entries = await world.entries(A)
    assert not entries["x"].lives(now)
    assert entries["y"].active
    assert "Undone: 1" in ledger("undo", "--cluster", CLUSTER).out
    assert (await world.entries(A))["x"].active
    assert ledger("undo", "--cluster", CLUSTER).code == 1
    assert ledger("delete-cluster", "--cluster", CLUSTER, "--include-denied").code == 0
    assert not (await world.entries(A))["y"].active
    assert "no address found for cluster_id=nobody" in ledger("delete-cluster", "--cluster", "nobody").err


async def test_v218_v219_a_lost_secret_is_replaced(world: World, ledger: Run, tmp_path: Path) -> None:
    """V-218, V-219"""
    await world.post("x", address=A)
    flags = ["replace-secret", "--address", A, "--zone", "inet"]
    assert ledger(*flags, "--new", "short").code == 1
    outcome = ledger(*flags, "--new", "LongEnough1")
    assert outcome.out == f"Secret updated for address '{A}' in zone 'inet'\n"
    assert (await world.post("x", address=A)).status == 404
    assert (await world.post("x", address=A, secret="LongEnough1")).status == 200
    await world.post("y", address=A, secret="LongEnough1")
    assert "with --force" in ledger(*flags, "--new", "LongEnough2").err
    assert ledger(*flags, "--new-file", "-", "--force", stdin="LongEnough3\n").code == 0
    assert (await world.post("x", address=A, secret="LongEnough3")).status == 200


async def test_looking_around(world: World, ledger: Run) -> None:
    await world.post("x", address=A)
    await world.post("gone", address="83.118.168.11")
    await world.delete("gone", address="83.118.168.11", retention=2)
    assert [one["address"] for one in ledger("list", "--json").json] == [A, "83.118.168.11/32"]
    assert [one["state"] for one in ledger("list", "--zone", "inet", "--json").json] == ["in use", "retained"]
    assert len(ledger("list", "--state", "retained", "--json").json) == 1
    assert ledger("list", "--zone", "hnet-private", "--json").json == []
    for flags in (["--address", "83.118.168.10"], ["--service", "x"]):
        assert [one["address"] for one in ledger("find", *flags, "--json").json] == [A]
    assert len(ledger("find", "--cluster", CLUSTER, "--json").json) == 2
    assert ledger("find", "--service", "nobody").code == 1
    assert A in ledger("list").out
    usage = {(one["zone"], one["ip_family"]): one for one in ledger("zones", "--json").json}
    assert (usage["inet", "ipv4"]["used"], usage["inet", "ipv4"]["free"]) == ("2", "1022")


async def test_history_tells_who_had_an_address_when(world: World, ledger: Run) -> None:
    await world.post("x", address=A, pending=True)
    await world.post("x", address=A)
    await world.post("y", address=A)
    await world.delete("x", address=A)
    await world.delete("y", address=A)
    await world.sweep()
    told = [(one["event"], one["service_name"]) for one in ledger("history", A, "--json").json]
    assert told[:5] == [
        ("registered", "x"),
        ("confirmed", "x"),
        ("joined", "y"),
        ("released", "x"),
        ("released", "y"),
    ]
    assert sorted(told[5:]) == [("freed", ""), ("left", "x"), ("left", "y")]
    assert "registered" in ledger("history", "83.118.168.10").out
    assert ledger("history", "83.118.168.99").code == 1


async def test_backup_while_running_and_restore_elsewhere(world: World, ledger: Run, tmp_path: Path) -> None:
    for number in range(30):
        await world.post(f"s{number}")
    await world.delete("s3", address="83.118.168.3", retention=5)
    out = str(tmp_path / "backup.jsonl.gz")
    assert "Backed up 30 addresses" in ledger("backup", "--out", out).out
    assert os.stat(out).st_mode & 0o777 == 0o600
    other = f"sqlite:///{tmp_path}/other.db"
    assert "Restored 30 addresses" in ledger("restore", "--from", out, database=other).out
    assert ledger("restore", "--from", out, database=other).code == 1
    assert ledger("list", "--json", database=other).json == ledger("list", "--json").json
    assert (
        ledger("history", "83.118.168.3", "--json", database=other).json
        == ledger("history", "83.118.168.3", "--json").json
    )


async def test_a_restored_ledger_serves_its_holders(
    start: Start, world: World, ledger: Run, tmp_path: Path
) -> None:
    await world.post("x", address=A)
    await world.post("y")
    out, other = str(tmp_path / "b.jsonl"), f"sqlite:///{tmp_path}/other.db"
    ledger("backup", "--out", out)
    ledger("restore", "--from", out, database=other)
    async with running(other, tmp_path / "pepper") as restored:
        assert (await restored.post("x")).address == A
        assert (await restored.post("x", address=A, secret=OTHER_SECRET)).status == 404
        assert (await restored.post("z")).address == "83.118.168.1/32"


async def test_an_export_has_nothing_of_the_secrets_and_imports_twice(
    world: World, ledger: Run, tmp_path: Path
) -> None:
    await world.post("x", address=A)
    out, other = tmp_path / "e.jsonl", f"sqlite:///{tmp_path}/other.db"
    assert ledger("export", "--out", str(out)).code == 0
    assert "seal" not in out.read_text()
    assert "Imported 1 addresses" in ledger("import", str(out), database=other).out
    assert "1 were there already" in ledger("import", str(out), database=other).out


HOLDER = {
    "service_name": "x",
    "namespace_id": "n",
    "cluster_id": "c",
    "retention_period_days": 0,
    "deny_external_cleanup": False,
    "uid": "",
    "expires_at": None,
    "pending": False,
    "marked_by": "",
    "expires_before": None,
}
RECORD = {"address": "83.118.168.10", "pool": "inet/4", "uid": "u", "registered_at": 1, "holders": [HOLDER]}


@pytest.mark.parametrize(
    "changes",
    [
        {"address": 3},
        {"address": "foo"},
        {"address": "83.118.168.0/24"},
        {"pool": "inet"},
        {"pool": "inet/6"},
        {"pool": "in et/4"},
        {"uid": None},
        {"registered_at": "now"},
        {"registered_at": 2**63},
        {"holders": []},
        {"holders": [{**HOLDER, "expires_at": "never"}]},
        {"holders": [{**HOLDER, "cluster_id": 7}]},
        {"holders": [{**HOLDER, "pending": 1}]},
        {"holders": [{**HOLDER, "retention_period_days": -5}]},
        {"holders": [{**HOLDER, "retention_period_days": 2**62}]},
        {"holders": [{**HOLDER, "service_name": ""}]},
        {"holders": [{**HOLDER, "namespace_id": "n" * 600}]},
        {"seal": {"key_id": "k", "salt": "?", "digest": ""}},
    ],
)
def test_a_line_that_is_no_record_is_refused_and_named(
    ledger: Run, tmp_path: Path, changes: dict[str, Any]
) -> None:
    outcome = ledger("import", str(_lines(tmp_path, RECORD | changes)))
    assert (outcome.code, "line 2" in outcome.err) == (1, True)
    assert ledger("list", "--json").json == []


def _lines(tmp_path: Path, *found: dict[str, Any]) -> Path:
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in ({"berth": "ledger", "format": 1}, *found)))
    return file


async def test_an_address_is_imported_in_its_one_spelling_and_once(
    ledger: Run, start: Start, tmp_path: Path
) -> None:
    """With a mask, or twice in one file, it is the same row as ever; the API starts on it and serves it."""
    double = RECORD | {"address": "83.118.168.10/32", "uid": "another"}
    outcome = ledger("import", str(_lines(tmp_path, RECORD | {"address": "83.118.168.10/32"}, double)))
    assert (outcome.code, outcome.out) == (1, "Imported 1 addresses, 0 were there already\n")
    assert "1 addresses are another's and were left alone: 83.118.168.10\n" in outcome.err
    async with start() as world:
        assert await world.stored() == ["83.118.168.10"]
        assert (await world.post("y", address=A)).status == 404


async def test_the_clock_is_accepted_by_a_person(world: World, ledger: Run) -> None:
    """After a jump nothing is freed; once accepted, by replicas on whichever host."""
    await world.post("x", address=A)
    await world.delete("x", address=A)
    first, second = (
        Sweeper(world.ledger, ClockGuard(boot=name), name, lease_ms=0) for name in ("one", "two")
    )
    for sweeper in (first, second):
        await sweeper.sweep()
    await world.post("y", address=A)
    await world.delete("y", address=A, retention=1)
    world.advance(days=2)
    for sweeper in (first, second):
        assert (await sweeper.sweep()).held_back == "ClockJumped"
    assert await world.stored() == ["83.118.168.10"]
    assert ledger("accept-clock").code == 0
    assert await first.sweep() == Swept(entries=1, addresses=1)
    assert await second.sweep() == Swept()
    assert await world.stored() == []


async def test_it_shows_who_speaks_for_a_cluster_and_that_it_is_frozen(world: World, ledger: Run) -> None:
    await world.post("x", address=A)
    await report(world, 1, request_body("x", address=A), epoch="original")
    assert [one["state"] for one in ledger("operators", "--json").json] == ["living"]
    await report(world, 4, request_body("x", address=A), epoch="copy")
    shown = ledger("operators")
    assert shown.code == 3
    assert "original" in shown.out
    assert "copy" in shown.out


async def test_a_silent_clusters_addresses_are_released_by_a_person_and_come_back(
    world: World, ledger: Run
) -> None:
    """Only while it is silent and after a question; retention, denial and time for an undo are kept; and who
    is heard again keeps what it lists.
    """
    await world.post("short", address=A)
    await world.post("long", address="83.118.168.11", retention=7)
    await world.post("denies", address="83.118.168.12", deny=True)
    await world.post("plain", address="83.118.168.13", cluster="never-reported")
    items = [request_body("short", address=A), request_body("long", address="83.118.168.11", retention=7)]
    await report(world, 1, *items, heartbeat_seconds=30)
    assert ledger("operators", "--silent", "--json").json == []
    refused = ledger("release-silent", "--cluster", CLUSTER, "--yes")
    assert (refused.code, "not among the silent" in refused.err) == (1, True)
    _make_silent(world)
    shown = ledger("operators", "--silent", "--json").json
    assert [(one["cluster_id"], one["entries"]) for one in shown] == [(CLUSTER, 3)]
    assert CLUSTER in ledger("operators", "--silent").out
    assert ledger("release-silent", "--cluster", CLUSTER, stdin="n\n").code == 1
    assert (await world.entries(A))["short"].active
    done = ledger("release-silent", "--cluster", CLUSTER, stdin="y\n")
    assert (done.code, "2 entries expire" in done.out, "'denies'" in done.out) == (0, True, True)
    now = world.clock.system_ms()
    assert await _hours(world, A, now) == pytest.approx(24, abs=0.1)
    assert await _hours(world, "83.118.168.11/32", now) == pytest.approx(7 * 24, abs=0.1)
    assert (await world.entries("83.118.168.12/32"))["denies"].active
    assert ledger("undo", "--cluster", CLUSTER).code == 0
    assert (await world.entries(A))["short"].active
    ledger("release-silent", "--cluster", CLUSTER, "--yes", "--grace-hours", "1")
    assert await _hours(world, A, now) == pytest.approx(1, abs=0.1)
    await report(world, 2, *items)
    assert (await world.entries(A))["short"].active
    assert (await world.entries("83.118.168.11/32"))["long"].active
    assert "--grace-hours" in ledger("release-silent", "--cluster", CLUSTER, "--grace-hours", "-1").err


def _make_silent(world: World) -> None:
    """The commands have a clock of their own: not the time is moved, but what was heard."""
    past = str(world.clock.system_ms() - 3_600_000)

    async def move() -> None:
        engine = await connect(world.database)
        async with engine.transaction() as tx:
            await tx.rows("UPDATE operators SET seen_at = $1, live_until = $1", int(past))
        await engine.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, move()).result()


async def _hours(world: World, address: str, now: int) -> float:
    (entry,) = (await world.entries(address)).values()
    assert entry.expires_at is not None
    return (entry.expires_at - now) / 3_600_000


async def test_netbox_is_compared_from_the_command_line(world: World, ledger: Run, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    with neighbour("netbox", tmp_path / "netbox") as netbox:
        flags = ("netbox-diff", "--netbox-url", netbox.url, "--netbox-token-file", str(tmp_path / "token"))
        assert ledger(*flags).code == 0
        await world.post("x", address=A)
        shown = ledger(*flags, "--repair", "--json")
        file = tmp_path / "zones.yaml"
        assert ledger("netbox-zones", *flags[1:], "--out", str(file)).code == 0
        assert ledger("netbox-zones", *flags[1:]).out == file.read_text()
        assert load_zones(file).names == ("inet",)
        netbox.say("mode", "odd")
        assert "not understood" in ledger("netbox-zones", *flags[1:]).err
    assert (shown.code, json.loads(shown.out)) == (3, [{"address": A, "difference": "absent"}])
    assert await outbox.length(world.ledger.engine) == 1
    assert "NetBox gave no answer" in ledger(*flags).err
