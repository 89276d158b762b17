"""Free ports on loopback."""

from __future__ import annotations

import socket

import pytest

from berth.devcluster import ports
from berth.errors import UserError


def test_free_ports_differ_and_lie_below_those_of_outgoing_connections() -> None:
    found = ports.free(20)

    assert len(set(found)) == 20
    assert all(ports.LOWEST <= port < 32768 for port in found)


def test_a_port_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        assert not ports.is_free(port)
        with pytest.raises(
            UserError, match=f"port {port} cannot be had .address already in use.: stop what uses it"
        ):
            ports.require(port)
