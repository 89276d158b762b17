"""Other controllers on the bench: which rows they get, how they are kept; and Cilium's checks can fail."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import cast

import pytest
from tests.faults.beside import BESIDE
from tests.faults.cilium import CONDITION, POOL, Cilium
from tests.faults.long import wanted
from tests.faults.process import Command
from tests.faults.rows import OTHERS, ROWS
from tests.faults.stage import until
from tests.faults.trade import Market, Object, Snapshot

from berth.dialects.vip import kinds
from berth.kube.client import Client
from berth.settings import Settings

NOT_ITS = ("T08", "T14", "T28", "T31", "T37")  # T37: what a backup of IP objects brings back


def told(**options: str) -> list[str]:
    return [row.id for row in wanted(Namespace(**{"rows": "", "dialect": "", "controller": "", **options}))]


def seen(*services: Object) -> Snapshot:
    return {kinds.SERVICE.key: list(services), POOL.key: []}


def shows(name: str, *addresses: str, message: str = "") -> Object:
    body: Object = {"metadata": {"name": name, "uid": name}, "spec": {"type": "LoadBalancer"}}
    condition = {"type": CONDITION, "status": "False" if message else "True", "message": message}
    ingress = [{"ip": address} for address in addresses]
    return {**body, "status": {"loadBalancer": {"ingress": ingress}, "conditions": [condition]}}


def test_without_another_controller_all_rows_are_ours() -> None:
    assert told() == [row.id for row in (*ROWS, *BESIDE)]
    assert told(dialect="cilium") == []


def test_another_controller_gets_no_row_that_knows_ours() -> None:
    assert told(controller="x", dialect="metal3") == [
        row.id for row in ROWS if row.id.split()[1] == "metal3" and not row.ours
    ]
    assert not {row.id for row in OTHERS} & set(told(controller="x"))


def test_cilium_is_played_what_vip_groups_are_but_what_it_does_not_claim() -> None:
    assert told(controller="x", dialect="cilium") == [
        row.id.replace(" vip", " cilium")
        for row in ROWS
        if " vip" in row.id and not row.ours and not row.id.startswith(NOT_ITS)
    ]
    assert told(controller="x", dialect="cilium", rows="T22") == ["T22 cilium"]


def test_two_services_with_one_address_are_found() -> None:
    trade = Cilium()
    assert trade.broken(seen(shows("a", "10.0.0.1"), shows("b", "10.0.0.2"), shows("c"))) == []
    assert trade.broken(seen(shows("a", "10.0.0.1"), shows("b", "10.0.0.2", "10.0.0.1"))) == [
        "I1: 10.0.0.1 has ['a', 'b']"
    ]


def test_an_address_that_changes_or_goes_is_found() -> None:
    market = Market(Cilium(), cast(Client, None), "n")
    assert market.wrong(seen(shows("a", "10.0.0.1"))) == []
    assert market.wrong(seen(shows("a", "10.0.0.2"))) == ["I5: a had 10.0.0.1 and has 10.0.0.2"]
    assert market.wrong(seen(shows("a"))) == ["I5: a had 10.0.0.1 and has nothing"]


def test_who_waits_says_why() -> None:
    (served, waiting) = Cilium().shown(seen(shows("a", "10.0.0.1"), shows("b", message="ran out")))
    assert (served.answer, served.reason) == ("10.0.0.1", "")
    assert (waiting.answer, waiting.reason) == ("", "ran out")


@pytest.mark.parametrize("kept", [False, True])
async def test_one_that_ends_by_itself_comes_back_if_it_is_kept(tmp_path: Path, *, kept: bool) -> None:
    log = tmp_path / "log"
    command = Command(f"{sys.executable} -c 'print(1)'", kept=kept)

    async def came_back() -> bool:
        return log.read_text().count("1") > 1

    async with command.running(Settings(kubeconfig=tmp_path, dialects=("cilium",)), log) as running:
        assert await until(came_back, 60.0 if kept else 0.5) is kept
        running.kill()
    assert not running.alive
