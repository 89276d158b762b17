"""The VIP dialect's kinds and literal names: wire-level, users and upstream's own objects carry them."""

from __future__ import annotations

from berth.kube.resource import Resource

GROUP = "paas.org"

IPGROUP = Resource(GROUP, "v1", "IPGroup", "ipgroups", namespaced=False)
IP = Resource(GROUP, "v1", "IP", "ips", namespaced=False)
VIRTUAL_IP = Resource(GROUP, "v1", "VirtualIP", "virtualips")
MAPPING = Resource(GROUP, "v1", "GroupSegmentMapping", "groupsegmentmappings", namespaced=False)
SERVICE = Resource("", "v1", "Service", "services")

# Labels of an IP object: which pool of which era it comes from.
GROUP_LABEL = "ipgroup"
MAPPING_LABEL = "gsm"
OWNER = "virtualips.paas.il/owner"  # the domain is upstream's own slip, and on every object it ever wrote
OWNER_UID = "berth.dev/owner-uid"

SERVICE_FINALIZER = "ips.paas.org/finalizer"
GROUP_FINALIZER = "ipgroups.paas.org/finalizer"
IP_FINALIZER = "ip.finalizers.virtualips.paas.org"
CLONE_FINALIZER = "service.finalizers.virtualips.paas.org"

WANTED_ADDRESS = "berth.dev/address"
HAD_ADDRESS = "berth.dev/allocated"  # on a Service: what it has, for a backup, which brings no status back
MIGRATE = "virtualips.paas.org/migrate"
MIGRATING = "virtualips.paas.org/migrating"  # on a Service: the VirtualIP that is being turned into it

CONDITION = "berth.dev/AddressAllocated"  # on a Service that waits, and only while it waits
FAILED = "AllocationFailed"

OWN_CLASS = "paas.org/vip"  # of its Services where another dialect serves those without a class
CLONE_SUFFIX = "-keepalived-clone"
