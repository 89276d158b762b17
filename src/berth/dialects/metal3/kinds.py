"""The Metal3 dialect's kinds and literal names: wire-level, users and other controllers match them."""

from __future__ import annotations

from berth.kube.resource import Resource

GROUP = "ipam.metal3.io"
CAPI_GROUP = "ipam.cluster.x-k8s.io"

POOL = Resource(GROUP, "v1alpha1", "IPPool", "ippools")
CLAIM = Resource(GROUP, "v1alpha1", "IPClaim", "ipclaims")
ADDRESS = Resource(GROUP, "v1alpha1", "IPAddress", "ipaddresses")

CAPI_CLAIMS = tuple(
    Resource(CAPI_GROUP, v, "IPAddressClaim", "ipaddressclaims") for v in ("v1beta2", "v1beta1")
)
CAPI_ADDRESSES = tuple(Resource(CAPI_GROUP, v, "IPAddress", "ipaddresses") for v in ("v1beta2", "v1beta1"))
CLUSTERS = tuple(Resource("cluster.x-k8s.io", v, "Cluster", "clusters") for v in ("v1beta2", "v1beta1"))

POOL_FINALIZER = "ippool.ipam.metal3.io"
CLAIM_FINALIZER = "ipclaim.ipam.metal3.io"
ADDRESS_FINALIZER = "ipaddress.ipam.metal3.io"
CAPI_CLAIM_FINALIZER = "ipam.metal3.io/ipaddressclaim"
CAPI_ADDRESS_FINALIZER = "ipam.metal3.io/ipaddress"

CLUSTER_LABEL = "cluster.x-k8s.io/cluster-name"
PROVIDER_LABEL = "cluster.x-k8s.io/provider"
PROVIDER = "ipam-metal3"
WATCH_LABEL = "cluster.x-k8s.io/watch-filter"
PAUSED = "cluster.x-k8s.io/paused"
WANTED_ADDRESS = "ipAddress"
# On a claim, beside our finalizer: what it was given, for a backup, which brings no status back.
HAD_ADDRESS = "berth.dev/allocated"
