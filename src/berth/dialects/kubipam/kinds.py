"""kubipam's kinds and literal names: wire-level, users and other controllers match them."""

from __future__ import annotations

from berth.kube.resource import Resource

GROUP = "ipam.mandelsoft.org"
RANGE = Resource(GROUP, "v1alpha1", "IPAMRange", "ipamranges")
REQUEST = Resource(GROUP, "v1alpha1", "IPAMRequest", "ipamrequests")

FINALIZER = "mandelsoft.org/ipam"  # on both kinds
COMPONENT = "ipam"  # source of the Events on a range

FIRST_MATCH = "FirstMatch"
ROUND_ROBIN = "RoundRobin"

READY = "Ready"
INVALID = "Invalid"
BUSY = "Busy"
DELETING = "Deleting"
WAITING_FOR_REQUESTS = "waiting for pending requests to be deleted"
