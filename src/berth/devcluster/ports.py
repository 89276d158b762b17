"""Free ports on loopback.

The kernel hands out local ports of outgoing connections from the ephemeral range, so a server that
stops and comes back on the same port may find it taken by somebody's client. Ours lie below that range.
"""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

from berth.errors import UserError

LOWEST = 15000
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free(count: int) -> list[int]:
    """Ports nobody listens on now. Another process may still be quicker: the caller retries."""
    found: set[int] = set()
    candidates = iter(random.sample(range(LOWEST, _highest()), 500))
    while len(found) < count:
        port = next(candidates)
        if is_free(port):
            found.add(port)
    return list(found)


def is_free(port: int) -> bool:
    try:
        _bind(port)
    except OSError:
        return False
    return True


def require(port: int) -> int:
    """A port somebody asked for by its number: that one or a sentence."""
    try:
        _bind(port)
    except OSError as error:
        words = os.strerror(error.errno or 0).lower()
        raise UserError(
            f"port {port} cannot be had ({words}): stop what uses it, or choose another"
        ) from error
    return port


def _bind(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Go's servers do: what a connection of a minute ago still holds is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


def _highest() -> int:
    if not EPHEMERAL.exists():
        return 32768
    first = int(EPHEMERAL.read_text().split()[0])
    return first if first > LOWEST + 1000 else 32768
