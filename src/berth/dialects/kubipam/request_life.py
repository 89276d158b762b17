"""An IPAMRequest's life: the shared one, which writes the block beside the finalizer.

The block is taken in memory before the finalizer is stored, so both go in one write; only who lost that block
to another operator is written again. A backup of the request keeps the annotation, as it does not the status.
"""

from __future__ import annotations

from berth.control.events import Recorder
from berth.dialects.claim import ClaimLife
from berth.dialects.kubipam.claims import Book
from berth.dialects.kubipam.kinds import CIDR
from berth.kube import patch
from berth.kube.client import Client
from berth.kube.meta import Object
from berth.metrics import Metrics


class RequestLife(ClaimLife):
    def __init__(self, book: Book, client: Client, events: Recorder, metrics: Metrics) -> None:
        super().__init__(book, client, events, metrics)
        self._requests = book

    def _marks(self, claim: Object) -> list[patch.Operation]:
        block = self._requests.remembers(claim)
        return patch.set_annotation(claim, CIDR, None if block is None else str(block))
