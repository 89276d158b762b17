"""A real Kubernetes control plane for trying and testing: its programs, and how they start and stop."""

from berth.devcluster.binaries import Binaries
from berth.devcluster.cluster import ClusterOptions, DevCluster

__all__ = ["Binaries", "ClusterOptions", "DevCluster"]
