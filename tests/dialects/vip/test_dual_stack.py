"""One address for each family a Service asks for; upstream has IPv4 alone."""

from __future__ import annotations

import pytest
from tests.support.operator import eventually
from tests.support.vip import World

from berth.dialects.vip import kinds
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
SIX = "2001-0db8-0000-0000-0000-0000-0000-0000"
BOTH = {"ipFamilyPolicy": "RequireDualStack"}


async def test_a_dual_stack_service_gets_one_address_of_each_family(world: World) -> None:
    await world.group("four", "1.1.1.0/24")
    await world.group("six", "2001:db8::/64")
    assert await world.served("web", **BOTH) == ("1.1.1.0", "2001:db8::")
    await world.eventually_owned(dict.fromkeys(("1.1.1.0", SIX), f"{world.namespace}/web"))
    assert meta.labels((await world.ips())[SIX]) == {"ipgroup": "six"}
    await world.delete("web")
    assert await world.ips() == {}


async def test_an_ipv6_service_gets_one_of_ipv6(world: World) -> None:
    await world.group("four", "1.1.1.0/24")
    await world.group("six", "2001:db8::/64", ["2001:0db8:0::"])
    await world.served("web", "2001:db8::1", ipFamilies=["IPv6"])


async def test_the_order_is_the_services(world: World) -> None:
    await world.group("all", "1.1.1.0/24")
    await world.group("six", "2001:db8::/64")
    await world.served("web", "2001:db8::", "1.1.1.0", ipFamilies=["IPv6", "IPv4"], **BOTH)


async def test_who_requires_both_gets_none_until_both_are_to_be_had(world: World) -> None:
    await world.group("four", "1.1.1.0/32")
    await world.service("web", **BOTH)
    assert "four: has no IPv6 addresses" in await world.pending("web", "no IP could be allocated")
    await world.served("other", "1.1.1.0")  # what nobody holds is free for others
    await world.group("six", "2001:db8::/64")
    await world.pending("web", "no IP could be allocated")
    await world.delete("other")
    await world.addresses("web", "1.1.1.0", "2001:db8::")


async def test_who_prefers_both_takes_one_and_waits_for_the_other(world: World) -> None:
    await world.group("four", "1.1.1.0/24")
    await world.served("web", "1.1.1.0", ipFamilyPolicy="PreferDualStack")
    await world.event("web", "no IP could be allocated (tried four: has no IPv6 addresses)")
    condition = meta.condition(await world.get("web"), kinds.CONDITION)
    assert condition is not None
    await world.group("six", "2001:db8::/64")
    await world.addresses("web", "1.1.1.0", "2001:db8::")
    assert meta.condition(await world.get("web"), kinds.CONDITION) is None


async def test_a_second_family_is_added_and_taken_away(world: World) -> None:
    await world.group("four", "1.1.1.0/24")
    await world.served("web", "1.1.1.0")
    await world.edit("web", BOTH)
    await world.event("web", "no IP could be allocated")
    assert await world.ingress("web") == ("1.1.1.0",)  # what it has it keeps
    await world.group("six", "2001:db8::/64")
    await world.addresses("web", "1.1.1.0", "2001:db8::")
    await world.edit("web", {"ipFamilyPolicy": "SingleStack"})
    await world.addresses("web", "1.1.1.0")
    await world.eventually_owned({"1.1.1.0": f"{world.namespace}/web"})


async def test_both_addresses_can_be_asked_for(world: World) -> None:
    await world.group("four", "1.1.1.0/24")
    await world.group("six", "2001:db8::/64")
    wish = {"berth.dev/address": "2001:db8::77, 1.1.1.77"}
    await world.served("web", "1.1.1.77", "2001:db8::77", annotations=wish, **BOTH)


async def test_the_status_tells_an_ipv6_groups_use(world: World) -> None:
    await world.group("six", "2001:db8::/126")
    await world.served("web", "2001:db8::", ipFamilies=["IPv6"])

    async def told() -> bool:
        group = await world.client.get(kinds.IPGROUP, "six")
        counts = {"total": 4, "used": 1, "free": 3, "reserved": 0, "outside": 0}
        return bool((group.get("status") or {}).get("addresses") == counts)

    await eventually(told)
