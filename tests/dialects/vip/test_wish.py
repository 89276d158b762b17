"""Section B of the contract: a Service that insists on an address, by field or by annotation."""

from __future__ import annotations

import pytest
from tests.support.operator import eventually
from tests.support.vip import G, World

from berth.dialects.vip import kinds
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]

NOT_AVAILABLE = "failed to allocate specific ip: the requested ip is not available"


async def test_a_wanted_address_is_given(world: World) -> None:
    """P-026."""
    await world.group(*G)
    await world.served("web", "1.1.1.77", loadBalancerIP="1.1.1.77")


async def test_the_annotation_asks_for_an_address_too(world: World) -> None:
    await world.group(*G)
    await world.served("web", "1.1.1.78", annotations={"berth.dev/address": "1.1.1.78"})


@pytest.mark.parametrize(
    ("wish", "text", "why"),
    [
        pytest.param("1.1.1.0", NOT_AVAILABLE, "1.1.1.0 is excluded", id="P-027"),
        pytest.param(
            "9.9.9.9",
            "failed to allocate specific ip: IPGroup not found for the requested ip",
            "has no such address",
            id="P-028",
        ),
        pytest.param(
            "1.1.2",
            "failed to allocate specific ip: the requested ip could not be parsed",
            "1.1.2",
            id="P-029",
        ),
        pytest.param(
            "2001:db8::1", NOT_AVAILABLE, "of a family this Service does not have", id="wrong family"
        ),
    ],
)
async def test_what_cannot_be_had_is_told_and_nothing_else_is_given(
    world: World, wish: str, text: str, why: str
) -> None:
    await world.group(*G)
    await world.service("web", loadBalancerIP=wish)
    assert why in await world.pending("web", text)


async def test_two_different_wishes_are_told(world: World) -> None:
    await world.group(*G)
    await world.service("web", loadBalancerIP="1.1.1.5", annotations={"berth.dev/address": "1.1.1.6"})
    assert "1.1.1.5 and 1.1.1.6" in await world.pending("web", NOT_AVAILABLE)


async def test_a_taken_address_is_waited_for_and_never_replaced_by_another(world: World) -> None:
    """P-030, P-031."""
    await world.group(*G)
    await world.served("first", "1.1.1.77", loadBalancerIP="1.1.1.77")
    await world.service("second", loadBalancerIP="1.1.1.77")
    message = await world.pending("second", NOT_AVAILABLE)
    assert f"1.1.1.77 is held by Service/{world.namespace}/first" in message
    await world.delete("first")
    await world.addresses("second", "1.1.1.77")


async def test_an_address_of_a_virtual_ip_is_not_taken_from_it(world: World) -> None:
    """P-032."""
    await world.mapping("old", "1.1.1.0/24")
    await world.service("target", "ClusterIP")
    await world.vip("vip", "target", "1.1.1.77")
    await world.vip_state("vip", "Valid")
    await world.group(*G)
    await world.service("web", loadBalancerIP="1.1.1.77")
    await world.pending("web", NOT_AVAILABLE)
    assert await world.owned() == {"1.1.1.77": f"{world.namespace}/vip"}


async def test_a_new_wish_moves_the_service(world: World) -> None:
    """P-033, P-034, P-035."""
    await world.group(*G)
    await world.served("web", "1.1.1.1")
    await world.edit("web", {"loadBalancerIP": "1.1.1.50"})
    await world.addresses("web", "1.1.1.50")
    await world.eventually_owned({"1.1.1.50": f"{world.namespace}/web"})

    await world.edit("web", {"loadBalancerIP": "1.1.1.50"})
    before = (await world.get("web"))["status"]
    await world.edit("web", {"loadBalancerIP": None})
    await world.served("next", "1.1.1.1")  # whatever the edit could have caused has happened by now
    assert (await world.get("web"))["status"] == before


async def test_a_wish_for_ones_own_address_changes_nothing(world: World) -> None:
    """P-034."""
    await world.group(*G)
    await world.served("web", "1.1.1.1")
    edited = await world.edit("web", {"loadBalancerIP": "1.1.1.1"})
    await world.served("next", "1.1.1.2")
    now = await world.get("web")
    assert now["metadata"]["resourceVersion"] == edited["metadata"]["resourceVersion"]


async def test_a_wish_for_a_taken_address_costs_the_present_one(world: World) -> None:
    """P-036."""
    await world.group(*G)
    await world.served("web", "1.1.1.1")
    await world.served("other", "1.1.1.50", loadBalancerIP="1.1.1.50")
    await world.edit("web", {"loadBalancerIP": "1.1.1.50"})
    await world.pending("web", NOT_AVAILABLE)
    await world.eventually_owned({"1.1.1.50": f"{world.namespace}/other"})
    await world.edit("web", {"loadBalancerIP": None})
    await world.addresses("web", "1.1.1.1")

    async def says_nothing_more() -> bool:
        return meta.condition(await world.get("web"), kinds.CONDITION) is None

    await eventually(says_nothing_more)
