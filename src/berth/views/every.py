"""The views of every dialect that keeps its leases in the cluster."""

from __future__ import annotations

from berth.views import Views, kubipam, metal3, vip

EVERY: tuple[Views, ...] = (metal3.VIEWS, kubipam.VIEWS, vip.VIEWS)
