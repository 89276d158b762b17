"""A pod that reaches the webhook port sends a Service with many ports, for an address with many sharers."""

from __future__ import annotations

from typing import Any

from tests.attacks.test_pod_pools import AT_MOST, calls

from berth.control.cache import Cache
from berth.dialects.vitistack import kinds, service_annotations, services
from berth.dialects.vitistack.record_store import Filed
from berth.dialects.vitistack.services import Neighbours
from berth.kube import meta

Object = dict[str, Any]
SAID = {kinds.ADDRESSES: "83.118.168.1", kinds.SHARING_KEY: "k", kinds.FAMILY: "ipv4", kinds.ZONE: "inet"}
FULL = {**SAID, kinds.SECRET_NAME: "default", kinds.RETENTION: "0", kinds.DENY: "false"}


def service(name: str, ports: list[Any]) -> Object:
    about = {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1", "annotations": FULL}
    return {"metadata": about, "spec": {"type": "LoadBalancer", "ports": [{"port": one} for one in ports]}}


def sharers(many: int, ports: range) -> Neighbours:
    cache = Cache()
    neighbours = Neighbours(cache, Filed(Cache()), ("",), ())
    for number in range(many):
        cache.put(service(f"sharer-{number}", [*ports, number]))
    return neighbours


def warned(asked: Object, neighbours: Neighbours) -> list[str]:
    wish = service_annotations.read(meta.annotations(asked), "made-up")
    return services.warnings(asked, wish, neighbours)


def test_ports_times_sharers_do_not_cost_their_product() -> None:
    """10,000 ports and 300 sharers held up every webhook for 600 ms."""

    def cost(size: int) -> int:
        asked, neighbours = service("made-up", [*range(size)]), sharers(size // 5, range(-10, 0))
        return calls(lambda: warned(asked, neighbours))

    assert cost(1000) / cost(500) < AT_MOST


def test_sharers_with_many_ports_are_looked_at_only_so_far() -> None:
    """Services that are stored may be large as well; nobody reads a thousand warnings."""
    asked = service("made-up", [*range(1000)])

    def cost(many: int) -> int:
        neighbours = sharers(many, range(-2000, 0))
        return calls(lambda: warned(asked, neighbours))

    assert cost(80) < cost(40) * 1.5
    assert len(warned(asked, sharers(100, range(-5, 0)))) == services.MOST_WARNINGS
    (told,) = warned(asked, sharers(1, range(1000)))
    assert len(told) < 1000


def test_a_port_that_is_no_number_is_compared_as_it_is_written() -> None:
    """The API server sends none such."""
    (told,) = warned(service("made-up", ["x", None, 7]), sharers(1, range(7, 8)))
    assert "same port 7/TCP" in told
