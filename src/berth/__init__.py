"""Berth: one address manager for Kubernetes. Start reading at run.py; docs/flow.md is the map."""

__version__ = "0.1.0"
