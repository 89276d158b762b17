"""metrics: numbers under their names, bounded labels, nothing left of a pool that is gone."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from berth.metrics import Metrics, PoolCounts, PoolKey

BLUE = PoolKey("metal3", "default", "blue")


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def text(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_a_pool_shows_its_four_numbers() -> None:
    metrics = Metrics()
    metrics.pool(BLUE, PoolCounts(total=10, used=3, free=5, reserved=2))
    labels = BLUE._asdict()
    assert value(metrics, "berth_pool_addresses", **labels) == 10
    assert value(metrics, "berth_pool_addresses_used", **labels) == 3
    assert value(metrics, "berth_pool_addresses_free", **labels) == 5
    assert value(metrics, "berth_pool_addresses_reserved", **labels) == 2


def test_a_pool_of_all_ipv6_is_a_number_like_any_other() -> None:
    metrics = Metrics()
    metrics.pool(BLUE, PoolCounts(total=2**128, used=0, free=2**128, reserved=0))
    assert value(metrics, "berth_pool_addresses", **BLUE._asdict()) == 2.0**128


def test_a_pool_that_is_gone_leaves_no_series() -> None:
    metrics = Metrics()
    metrics.pool(BLUE, PoolCounts(1, 1, 0, 0))
    metrics.pool_gone(BLUE)
    metrics.pool_gone(BLUE)
    assert "blue" not in text(metrics)


def test_pools_past_the_limit_are_counted_and_take_a_freed_place() -> None:
    metrics = Metrics(pool_limit=1)
    green = PoolKey("metal3", "default", "green")
    metrics.pool(BLUE, PoolCounts(1, 1, 0, 0))
    metrics.pool(green, PoolCounts(1, 1, 0, 0))
    assert value(metrics, "berth_pools_unlisted") == 1
    metrics.pool_gone(BLUE)
    metrics.pool(green, PoolCounts(1, 1, 0, 0))
    assert value(metrics, "berth_pools_unlisted") == 0
    assert value(metrics, "berth_pool_addresses", **green._asdict()) == 1


def test_a_label_that_meets_too_many_values_files_the_rest_under_other() -> None:
    metrics = Metrics()
    for number in range(150):
        metrics.decided("vip", "refused", f"Reason{number}")
    assert value(metrics, "berth_decisions_total", dialect="vip", result="refused", reason="Reason0") == 1
    assert value(metrics, "berth_decisions_total", dialect="vip", result="refused", reason="other") == 50


def test_each_verb_fills_its_metric() -> None:
    metrics = Metrics()
    metrics.claims("metal3", "bound", 7)
    metrics.reconciled("metal3", "done", 0.004)
    metrics.queue_depth("metal3", 12)
    metrics.leading(True)
    metrics.kube_request("patch", 200, 0.01)
    metrics.reviewed("/validate", "denied", 0.002)
    metrics.event_written()
    metrics.event_dropped("flood", 3)
    assert value(metrics, "berth_claims", dialect="metal3", state="bound") == 7
    assert value(metrics, "berth_reconcile_seconds_count", controller="metal3", result="done") == 1
    assert value(metrics, "berth_queue_depth", controller="metal3") == 12
    assert value(metrics, "berth_leader") == 1
    assert value(metrics, "berth_kube_request_seconds_count", verb="patch", code="200") == 1
    assert value(metrics, "berth_webhook_seconds_count", webhook="/validate") == 1
    assert value(metrics, "berth_webhook_requests_total", webhook="/validate", result="denied") == 1
    assert value(metrics, "berth_events_written_total") == 1
    assert value(metrics, "berth_events_dropped_total", cause="flood") == 3


def test_two_sets_of_metrics_in_one_process_do_not_meet() -> None:
    first, second = Metrics(), Metrics(CollectorRegistry())
    first.leading(True)
    assert value(second, "berth_leader") == 0
