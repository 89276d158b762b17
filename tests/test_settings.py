"""A setting is a field with its flag, environment name, help and default; all else comes from that."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from berth.central.settings import ApiSettings, Backup
from berth.dialects import DIALECTS
from berth.errors import UserError
from berth.settings import Settings, exported, filled, listed, options, positive, setting


@dataclass(frozen=True)
class Inner:
    days: int = setting(3, "--inner-days", "Days.", read=positive)
    seen: float = 1.0  # nobody is asked


@dataclass(frozen=True)
class Outer:
    names: tuple[str, ...] = setting(("a", "b"), "--names", "Names.", read=listed, looks=("pools",))
    quick: bool = setting(False, "--quick/--slow", "Hurry.")
    inner: Inner = field(default_factory=Inner)


def test_what_can_be_told_is_in_the_order_of_the_fields_with_its_type_and_its_default_as_typed() -> None:
    found = [(option.flag, option.environment, typed, option.default) for option, typed in options(Outer)]
    assert found == [
        ("--names", ("BERTH_NAMES",), str, "a,b"),
        ("--quick/--slow", ("BERTH_QUICK",), bool, False),
        ("--inner-days", ("BERTH_INNER_DAYS",), int, 3),
    ]


def test_a_look_is_told_what_changes_it() -> None:
    assert [option.name for option, _ in options(Outer, "pools")] == ["names"]


def test_what_was_told_is_read_and_the_rest_is_as_usual() -> None:
    assert filled(Outer, {"names": "x, y", "inner_days": 5}) == Outer(("x", "y"), inner=Inner(days=5))
    assert filled(Outer, {}) == Outer()


def test_a_value_that_cannot_be_is_told_with_its_flag() -> None:
    with pytest.raises(UserError, match=r"^--inner-days must be a number above 0, not -1"):
        filled(Outer, {"inner_days": -1})


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"history_days": 0}, "--history-days must be a number above 0, not 0."),
        ({"reload_seconds": -1.0}, "--reload-seconds must be a number above 0, not -1.0."),
        ({"backup_every": "x"}, "--backup-every must be seconds above 0, or like 15m, 1h or 1d, not 'x'."),
    ],
)
def test_so_are_those_of_the_api(told: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"):
        filled(ApiSettings, told)


def test_a_unit_or_a_list_of_the_api_is_read() -> None:
    told = {"ror_grace_hours": 2.0, "ror_events": "a, b,", "backup_every": "15m", "backup_dir": None}
    settings = filled(ApiSettings, told)
    assert (settings.ror.grace_seconds, settings.ror.events) == (7200.0, ("a", "b"))
    assert settings.backup == Backup(every_seconds=900.0)


def test_what_is_exported_gives_a_look_the_same_settings() -> None:
    told = Outer(names=("x", "y"), quick=True)
    assert exported(told) == {"BERTH_NAMES": "x,y"}, "that it hurries changes no look"


def test_settings_have_a_part_for_each_dialect_told_or_not() -> None:
    assert Settings(parts=(Inner(days=7),)).of(Inner).days == 7
    assert all(Settings().of(dialect.settings) == dialect.settings() for dialect in DIALECTS)


def test_no_two_settings_of_the_operator_have_one_flag_or_environment_name() -> None:
    kinds: list[type] = [Settings, *(dialect.settings for dialect in DIALECTS)]
    every = [option for kind in kinds for option, _ in options(kind)]
    flags = [option.flag for option in every]
    names = [name for option in every for name in option.environment]
    assert len(set(flags)) == len(flags)
    assert len(set(names)) == len(names)
