"""The views of every dialect."""

from __future__ import annotations

from berth.views import Views, kubipam, metal3, vip, vitistack


def every(api_url: str = "") -> tuple[Views, ...]:
    """`api_url`: where the IPAM-API is, which alone knows how full a zone is."""
    return (metal3.VIEWS, kubipam.VIEWS, vip.VIEWS, vitistack.views(api_url))
