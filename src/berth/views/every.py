"""The views of every dialect."""

from __future__ import annotations

from berth.settings import Settings
from berth.views import Views, kubipam, metal3, vip, vitistack


def every(settings: Settings) -> tuple[Views, ...]:
    """Those of the dialects that are served."""
    all_views = (metal3.VIEWS, kubipam.VIEWS, vip.VIEWS, vitistack.VIEWS)
    return tuple(views for views in all_views if views.dialect in settings.dialects)
