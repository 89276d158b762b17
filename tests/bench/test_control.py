"""The benchmark of a settled world: what it says must be none is none."""

from __future__ import annotations

import pytest

from bench import control


@pytest.mark.cluster
@pytest.mark.slow
def test_a_pass_over_a_settled_world_makes_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "SETTLE_SECONDS", 2.0)
    start, settled = control.run(40)
    assert (start["bench"], start["n"]) == ("control-start", 40)
    assert start["list_requests"] > 0, "the counters of the API server are read"
    assert (settled["bench"], settled["n"], settled["requests"]) == ("control-settled", 20, 0)
