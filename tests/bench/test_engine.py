"""The engine's benchmark runs, and each line says what was measured."""

from __future__ import annotations

import pytest
from bench.engine import EVERY_CASE, Case, Field, run, shapes

from berth.leasing import Pool, Space, Strategy

KEYS = {
    "bench",
    "shape",
    "strategy",
    "addresses",
    "n",
    "fragmented",
    "op",
    "per_s",
    "best_per_s",
    "flat",
    "rss_mb",
}


def test_every_case_of_the_benchmark_has_a_level_operation_and_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.engine.SAMPLES", 1)
    monkeypatch.setattr("bench.engine.SAMPLE_OPERATIONS", 20)
    rows = list(run(most=10, cases=[Case("/8", Strategy.FIRST), Case("/64", Strategy.BEST_FIT, bits=2)]))
    assert all(set(row) == KEYS for row in rows)
    assert [(row["op"], row["fragmented"]) for row in rows[:4]] == [
        ("take", False),
        ("release", False),
        ("take", True),
        ("release", True),
    ]
    assert all(row["per_s"] > 0 and row["flat"] >= 1 for row in rows)


@pytest.mark.parametrize(
    "case", [Case("10000 ranges", Strategy.FIRST), Case("/64", Strategy.BEST_FIT, bits=2)]
)
def test_what_is_timed_is_really_taken_and_given_back(case: Case) -> None:
    field = Field(case, Space(Pool("bench", shapes()[case.shape], strategy=case.strategy)), level=100)
    field.fill()
    holders = field.holders(10)
    _, blocks = field.take(holders)
    assert [field.space.holder_of(block) for block in blocks] == holders
    assert field.space.usage().used == 110 << case.bits
    field.release(blocks)
    assert field.space.usage().used == 100 << case.bits
    field.thin()
    assert field.space.usage().used == 50 << case.bits


def test_the_benchmark_covers_all_strategies_on_all_shapes() -> None:
    cases = {(case.shape, case.strategy) for case in EVERY_CASE}
    assert cases >= {(shape, strategy) for shape in ("/8", "/64", "10000 ranges") for strategy in Strategy}
