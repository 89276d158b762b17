"""AdmissionReviews as an API server sends them, with the parts a test wants to change."""

from __future__ import annotations

from typing import Any

import orjson

from berth.control.review import Review, parse_review


def body_of(**request: Any) -> bytes:
    full = {
        "uid": "u-1",
        "kind": {"group": "example.org", "version": "v1", "kind": "Box"},
        "resource": {"group": "example.org", "version": "v1", "resource": "boxes"},
        "operation": "CREATE",
        "namespace": "default",
        "name": "b1",
        "userInfo": {"username": "ann"},
        "object": {"metadata": {"name": "b1", "namespace": "default"}, "spec": {"size": 2}},
        "oldObject": None,
        "dryRun": False,
        **request,
    }
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": full})


def review_of(**request: Any) -> Review:
    return parse_review(body_of(**request))
