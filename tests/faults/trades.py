"""The dialects that ledger in the API server, by name, and what others speak there."""

from __future__ import annotations

from collections.abc import Callable

from tests.faults.cilium import Cilium
from tests.faults.kubipam import Kubipam
from tests.faults.metal3 import Metal3
from tests.faults.trade import Trade
from tests.faults.vip import Vip

TRADES: dict[str, Callable[[], Trade]] = {"metal3": Metal3, "kubipam": Kubipam, "vip": Vip, "cilium": Cilium}
