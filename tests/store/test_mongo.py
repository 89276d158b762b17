"""Taking over upstream's records: BSON and JSON lines, secrets opened with upstream's key, twice
without harm.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.mongo import EXPIRES, KEY, START, archive, dump, exported

from berth.errors import UserError
from berth.secret import Pepper, Secret
from berth.store import bson, mongo
from berth.store.engine import Engine
from berth.store.importing import import_records
from berth.store.queries import record

PEPPER = Pepper({"p": b"p" * 32})
FORMS = {"bson": dump, "json": lambda: exported().encode(), "archive": archive}


@pytest.mark.parametrize("form", ["bson", "json", "archive", "archive.gz", "bson.gz"])
async def test_a_dump_is_taken_over_and_can_be_run_again(engine: Engine, tmp_path: Path, form: str) -> None:
    file = tmp_path / f"addresses.{form}"
    data = FORMS[form.removesuffix(".gz")]()
    file.write_bytes(gzip.compress(data) if form.endswith(".gz") else data)
    key = mongo.UpstreamKey(KEY, START)
    done = await import_records(engine, mongo.Dump(file, key, PEPPER, 1).records())
    assert (done.added, done.conflicts) == (1, [])
    again = await import_records(engine, mongo.Dump(file, key, PEPPER, 1).records())
    assert (again.added, again.present) == (0, 1)
    found = await record(engine, "83.118.168.10", "inet")
    assert found is not None
    assert PEPPER.verifies(Secret("SuperSecret"), found.address.secret_hash)
    assert found.address.uid == bytes(range(12)).hex()
    ends = {row.entry.identity.service_name: row.entry.expires_at for row in found.holders}
    assert ends == {"x": None, "y": EXPIRES}
    assert all(row.entry.deny and row.entry.retention_days == 3 for row in found.holders)


async def test_upstreams_doubles_and_nets_are_told_and_stop_nothing(engine: Engine, tmp_path: Path) -> None:
    """It has no unique index and lets a net be registered: one address twice, a /24, a zone with a slash."""
    lines = [
        exported(),
        exported(oid=b"another id.."),
        exported("83.118.168.0/24"),
        exported("83.118.168.11", zone="in/et"),
        exported("83.118.168.12", zone=7),
        exported("83.118.168.13"),
    ]
    file = tmp_path / "addresses.json"
    file.write_text("".join(lines))
    dump = mongo.Dump(file, mongo.UpstreamKey(KEY, START), PEPPER, 1)
    done = await import_records(engine, dump.records())
    assert (done.added, done.conflicts) == (2, ["83.118.168.10"])
    assert [one.split(" (")[0] for one in dump.left_out] == ["record 3", "record 4", "record 5"]
    assert "83.118.168.0/24" in dump.left_out[0]
    kept = await record(engine, "83.118.168.10", "inet")
    assert kept is not None
    assert kept.address.uid == bytes(range(12)).hex()


def test_the_key_file_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    file.write_text(json.dumps({"enc_key": KEY.decode(), "enc_iv": START.decode()}))
    assert mongo.load_key(file) == mongo.UpstreamKey(KEY, START)
    file.write_text(json.dumps({"enc_key": "short", "enc_iv": START.decode()}))
    with pytest.raises(UserError, match="16, 24 or 32"):
        mongo.load_key(file)
    file.write_text("{}")
    with pytest.raises(UserError, match="enc_key"):
        mongo.load_key(file)


def test_a_wrong_key_is_told_without_showing_anything(tmp_path: Path) -> None:
    file = tmp_path / "addresses.bson"
    file.write_bytes(dump())
    with pytest.raises(UserError, match="right key") as told:
        list(mongo.Dump(file, mongo.UpstreamKey(b"z" * 32, START), PEPPER, 1).records())
    assert "SuperSecret" not in str(told.value)


@pytest.mark.parametrize("length", range(1, 60, 7))
def test_a_cut_dump_is_refused(tmp_path: Path, length: int) -> None:
    file = tmp_path / "addresses.bson"
    for data in (dump(), archive(), gzip.compress(dump())):
        file.write_bytes(data[:-length])
        with pytest.raises(UserError, match=r"no BSON dump|cannot be read"):
            list(mongo.Dump(file, mongo.UpstreamKey(KEY, START), PEPPER, 1).records())


@given(st.binary(max_size=300))
def test_garbage_is_refused_and_never_breaks_the_reader(raw: bytes) -> None:
    with pytest.raises(bson.BadBson):
        list(bson.archived(bson.ARCHIVE + raw, "addresses"))
    try:
        list(bson.documents(raw))
    except bson.BadBson:
        return
    assert raw == b"" or len(raw) >= 5
