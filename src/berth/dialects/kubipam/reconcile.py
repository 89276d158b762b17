"""What is watched and what wakes what.

IPAMRange changed ─────► the range; its unsettled requests, if its spec or its deletion changed
the range serves ──────► its unsettled requests, oldest first
IPAMRequest changed ───► the request; the range's space, if it shows a block or is gone
others granted ────────► the request it is pending for
a block came free ─────► who waits for that very block, and the oldest of each length that has room now
IPAMRequest gone ──────► its range, if that waits to go
"""

from __future__ import annotations

from typing import Any

from berth.control.cache import revision_of
from berth.control.controller import Controller
from berth.control.events import Recorder
from berth.control.informers import WatchSpec
from berth.dialects.claim import ClaimReconciler
from berth.dialects.claim_counts import Tally
from berth.dialects.dialect import Dependencies, DialectRuntime
from berth.dialects.kubipam import kinds
from berth.dialects.kubipam.claims import RequestHandler
from berth.dialects.kubipam.orphans import Audit, AuditSettings
from berth.dialects.kubipam.pools import RangeLife
from berth.dialects.kubipam.ranges import Ranges, Sources
from berth.dialects.kubipam.requests import INDEXES, Requests
from berth.dialects.kubipam.translate import name_of, range_of, referred
from berth.dialects.wiring import Listeners, by_age, is_changed, latest
from berth.kube import meta
from berth.kube.meta import Ref

Object = dict[str, Any]
# More passes than requests in flight: those that wait for a group to be written hold up nobody else's write.
AT_ONCE = 256


def build(kit: Dependencies, settings: AuditSettings) -> DialectRuntime:
    return _KubipamWiring(kit, settings).built()


class _KubipamWiring:
    def __init__(self, kit: Dependencies, settings: AuditSettings) -> None:
        self._kit = kit
        self._listeners = Listeners()
        ranges = kit.watch(WatchSpec((kinds.RANGE,)))
        self._range_cache = ranges.cache
        requests = kit.watch(WatchSpec((kinds.REQUEST,), INDEXES))
        self._request_cache = requests.cache
        # Every grant is told, and an object gets only so many Events: warnings must not wait behind those.
        self._events = Recorder(kit.client, kit.metrics, component=kinds.COMPONENT)
        self._warnings = Recorder(kit.client, kit.metrics, component=kinds.COMPONENT)
        self._count = Tally(kit.metrics, "kubipam").listener(_state)
        sources = Sources(kit.client, ranges, Requests(self._request_cache), kit.settings.namespace)
        self._ranges = Ranges(sources, kit.metrics, self._wake)
        self._book = RequestHandler(kit.client, requests, self._ranges, self._events)
        self._book.look_after = self._wake_range
        self._audit = Audit(sources, self._ranges, self._warnings, settings)
        self._build_controllers(sources)
        self._listeners.on(self._range_cache, self._range_changed)
        self._listeners.on(self._request_cache, self._request_changed)

    def _build_controllers(self, sources: Sources) -> None:
        kit = self._kit
        life = RangeLife(sources, self._ranges)
        life.opened = self._wake_requests_of
        claims = ClaimReconciler(self._book, kit.events, kit.metrics)
        self._range_controller = Controller("kubipam.range", life.reconcile, kit.metrics)
        self._request_controller = Controller(
            "kubipam.request", claims.reconcile, kit.metrics, at_once=AT_ONCE
        )

    def built(self) -> DialectRuntime:
        return DialectRuntime(
            controllers=(self._range_controller, self._request_controller),
            adopt=self._adopt,
            tasks=(self._events.run, self._warnings.run, self._audit.run),
        )

    def _adopt(self) -> None:
        """Existing holders before newcomers, then everything once, the oldest requests first."""
        self._listeners.start()
        for obj in self._range_cache:
            self._range_changed(None, obj)
        for request in by_age(self._request_cache):
            self._count(None, request)
            self._wake(meta.ref(request))

    # What wakes what

    def _range_changed(self, old: Object | None, new: Object | None) -> None:
        obj = latest(old, new)
        if new is None:
            self._ranges.close(name_of(obj))
        else:
            if _is_rewound(old, new):
                self._ranges.rewound(name_of(new))
            self._ranges.see(new)
        self._range_controller.add(meta.ref(obj))
        if is_changed(old, new):
            self._wake_requests_of(name_of(obj))

    def _request_changed(self, old: Object | None, new: Object | None) -> None:
        request = latest(old, new)
        self._count(old, new)
        self._ranges.request_changed(old, new)
        if _is_rewound(old, new):
            self._doubt(range_of(request))
        self._request_controller.add(meta.ref(request))
        self._tell_busy(old, new)
        if old is not None and (new is None or referred(old) != referred(new)):
            for key in referred(old):
                self._wake_range(key)

    def _doubt(self, key: str) -> None:
        """A backup was restored, and the range's own watch has perhaps not told us yet: nobody is served
        before its page was compared with the server's."""
        obj, opened = self._ranges.object(key), self._ranges.get(key)
        if obj is not None and opened is not None:
            opened.adopted = opened.serving = False
            self._range_controller.add(meta.ref(obj))

    def _wake(self, ref: Ref) -> None:
        self._request_controller.add(ref)

    def _wake_range(self, key: str) -> None:
        """A request of this range went: the range may wait for that, or have a block on its way to it."""
        obj, opened = self._ranges.object(key), self._ranges.get(key)
        if obj is None or opened is None:
            return
        if meta.is_deleting(obj) or opened.ledger.has_leftovers() or opened.slipped:
            self._range_controller.add(meta.ref(obj))

    def _wake_requests_of(self, key: str) -> None:
        for request in by_age(filter(self._book.is_unsettled, self._request_cache.by("range", key))):
            self._wake(meta.ref(request))

    # What is told

    def _tell_busy(self, old: Object | None, new: Object | None) -> None:
        """A request that waits is told on its range too, once for every message."""
        status = (new or {}).get("status") or {}
        if new is None or status.get("state") != kinds.BUSY:
            return
        before = ((old or {}).get("status") or {}).get("message")
        obj = self._ranges.object(range_of(new))
        if obj is not None and status.get("message") != before:
            self._warnings.event(obj, "Warning", "allocation", str(status.get("message")))


def _state(request: Object | None) -> str:
    return "" if request is None else (request.get("status") or {}).get("state") or "New"


def _is_rewound(old: Object | None, new: Object | None) -> bool:
    """Only a restored backup shows an object again, or an older one."""
    return old is not None and new is not None and revision_of(new) <= revision_of(old)
