"""The command lines of the control plane: which flags, and why those.

Everything listens on loopback only and asks for a certificate of this cluster's authority, etcd too:
another user of the machine, or another cluster that came by the same port, gets nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from berth.devcluster.binaries import Binaries
from berth.devcluster.pki import Pki

SERVICE_RANGES = "10.96.0.0/16,fd00:10:96::/112"


@dataclass(frozen=True, slots=True)
class Ports:
    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int


@dataclass(frozen=True, slots=True)
class Plane:
    """Everything the command lines are made of."""

    binaries: Binaries
    directory: Path
    pki: Pki
    ports: Ports

    @property
    def etcd_data(self) -> Path:
        return self.directory / "etcd"

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"


def etcd(plane: Plane, *, durable: bool) -> list[str]:
    client = f"https://127.0.0.1:{plane.ports.etcd}"
    peer = f"https://127.0.0.1:{plane.ports.etcd_peer}"
    server = (plane.pki.certificate("server"), plane.pki.key("server"))
    return [
        str(plane.binaries["etcd"]),
        "--name=devcluster",
        f"--data-dir={plane.etcd_data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=devcluster={peer}",
        *(f"--{role}cert-file={server[0]}" for role in ("", "peer-")),
        *(f"--{role}key-file={server[1]}" for role in ("", "peer-")),
        *(f"--{role}trusted-ca-file={plane.pki.ca}" for role in ("", "peer-")),
        # A single member waits for one election timeout before it dares to lead; nobody else could.
        "--heartbeat-interval=20",
        "--election-timeout=200",
        # Benchmarks write more between two compactions than the default allows.
        f"--quota-backend-bytes={8 << 30}",
        "--client-cert-auth",
        "--peer-client-cert-auth",
        # Without fsync a killed process loses nothing, only a crash of the whole machine would.
        f"--unsafe-no-fsync={str(not durable).lower()}",
    ]


def apiserver(plane: Plane, *, authorization: str, more: tuple[str, ...]) -> list[str]:
    pki = plane.pki
    return [
        str(plane.binaries["kube-apiserver"]),
        f"--etcd-servers=https://127.0.0.1:{plane.ports.etcd}",
        f"--etcd-cafile={pki.ca}",
        f"--etcd-certfile={pki.certificate('etcd-client')}",
        f"--etcd-keyfile={pki.key('etcd-client')}",
        "--bind-address=127.0.0.1",
        # Nobody is told of it. Left out it is looked for on the default route, which a machine without a
        # network has not.
        "--advertise-address=192.0.2.1",
        f"--secure-port={plane.ports.apiserver}",
        # The endpoints of the `kubernetes` Service may not be loopback addresses, and ours is one.
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={pki.certificate('server')}",
        f"--tls-private-key-file={pki.key('server')}",
        f"--client-ca-file={pki.ca}",
        f"--authorization-mode={authorization}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki.service_account_key}",
        f"--service-account-signing-key-file={pki.service_account_key}",
        f"--service-cluster-ip-range={SERVICE_RANGES}",
        # It waits for a `default` service account that only a controller manager would make.
        "--disable-admission-plugins=ServiceAccount",
        "--allow-privileged=true",
        # A flood is what the benchmarks are about: the server's own limits are not to be measured.
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1500",
        f"--cert-dir={pki.directory}",
        *more,
    ]


def controller_manager(plane: Plane, *, controllers: str) -> list[str]:
    pki = plane.pki
    return [
        str(plane.binaries["kube-controller-manager"]),
        f"--kubeconfig={plane.kubeconfig}",
        f"--controllers={controllers}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={plane.ports.controller_manager}",
        f"--tls-cert-file={pki.certificate('server')}",
        f"--tls-private-key-file={pki.key('server')}",
        f"--root-ca-file={pki.ca}",
        f"--service-account-private-key-file={pki.service_account_key}",
    ]
