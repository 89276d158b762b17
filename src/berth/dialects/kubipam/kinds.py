"""kubipam's kinds and literal names: wire-level, users and other controllers match them."""

from __future__ import annotations

from berth.kube.resource import Resource

GROUP = "ipam.mandelsoft.org"
RANGE = Resource(GROUP, "v1alpha1", "IPAMRange", "ipamranges")
REQUEST = Resource(GROUP, "v1alpha1", "IPAMRequest", "ipamrequests")

FINALIZER = "mandelsoft.org/ipam"  # on both kinds
# What a backup of objects keeps, which brings no status back.
CIDR = "berth.dev/cidr"  # on a request: its block
TAKEN = "berth.dev/taken"  # on a range: what is taken of it, by the namespace of who has it
COMPONENT = "ipam"  # source of the Events on a range

FIRST_MATCH = "FirstMatch"
ROUND_ROBIN = "RoundRobin"

ALLOCATED = "AddressAllocated"  # the reason of a request that has its block
READY = "Ready"
INVALID = "Invalid"
BUSY = "Busy"
DELETING = "Deleting"
WAITING_FOR_REQUESTS = "waiting for pending requests to be deleted"
