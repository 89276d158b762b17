"""A real Kubernetes control plane for trying and testing: its programs, and how they start and stop."""

from berth.devcluster.binaries import Binaries
from berth.devcluster.cluster import DevCluster, Options

__all__ = ["Binaries", "DevCluster", "Options"]
