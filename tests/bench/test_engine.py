"""The engine's benchmark runs, and each line says what was measured."""

from __future__ import annotations

import pytest

from berth.bench.engine import EVERY_CASE, Case, run
from berth.leasing import Strategy

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
    monkeypatch.setattr("berth.bench.engine.SAMPLES", 1)
    monkeypatch.setattr("berth.bench.engine.SAMPLE_OPERATIONS", 20)
    rows = list(run(most=10, cases=[Case("/8", Strategy.FIRST), Case("/64", Strategy.BEST_FIT, bits=2)]))
    assert all(set(row) == KEYS for row in rows)
    assert [(row["op"], row["fragmented"]) for row in rows[:4]] == [
        ("take", False),
        ("release", False),
        ("take", True),
        ("release", True),
    ]
    assert all(row["per_s"] > 0 and row["flat"] >= 1 for row in rows)


def test_the_benchmark_covers_all_strategies_on_all_shapes() -> None:
    cases = {(case.shape, case.strategy) for case in EVERY_CASE}
    assert cases >= {(shape, strategy) for shape in ("/8", "/64", "10000 ranges") for strategy in Strategy}
