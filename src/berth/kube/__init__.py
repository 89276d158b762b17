"""Kubernetes over HTTP with plain dicts, and no IPAM word.

Read `resource.py` (where an object lives), `client.py` (the verbs), then `watch.py` (list, then watch,
forever).
"""
