"""The seed's own examples, with kubectl, as its reader would try them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cluster import Kubectl
from tests.support.vip import World

from berth.dialects.vip import kinds
from berth.dialects.vip.migrate import State

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
EXAMPLES = Path(__file__).parents[3] / "examples" / "vip"


async def _create(kubectl: Kubectl, world: World, *files: str) -> None:
    for file in files:
        await kubectl("create", "-n", world.namespace, "-f", str(EXAMPLES / file))


async def test_a_group_and_a_service(world: World, kubectl: Kubectl) -> None:
    await _create(kubectl, world, "ipgroup.yaml", "service.yaml", "service-wanted.yaml")
    await world.addresses("web", "1.1.1.1")
    await world.addresses("shop", "1.1.1.77")
    listed = await kubectl("get", "ipg,ip")
    assert "1.1.1.0/24" in listed
    assert f"{world.namespace}/web" in listed


async def test_two_families(world: World, kubectl: Kubectl) -> None:
    await _create(kubectl, world, "ipgroup.yaml", "dual-stack.yaml")
    await world.addresses("both", "1.1.1.1", "2001:db8::1")


async def test_the_seeds_migration_command(world: World, kubectl: Kubectl) -> None:
    """P-068, with the command of the seed."""
    await _create(kubectl, world, "migration.yaml")
    await world.vip_state("legacy", State.VALID)
    await kubectl("annotate", "vip", "legacy", "-n", world.namespace, f"{kinds.MIGRATE}=")
    await world.vip_state("legacy", State.MIGRATED)
    await world.addresses("legacy", "5.5.5.1")
    listed = await kubectl("get", "vip", "-n", world.namespace)
    assert "Migrated" in listed
