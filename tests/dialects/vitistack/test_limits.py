"""Worlds of their own: one family only, a tiny zone, a private CA, two replicas."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.operator import eventually
from tests.support.started import free_port
from tests.support.vitistack import Api, World, address_of, emptied, fresh, of, operating, prepared, served

from berth.control.ca_store import utc_now
from berth.control.x509 import issue, make_authority
from berth.devcluster import ClusterOptions, DevCluster
from berth.errors import Invalid

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
TINY = """
zones:
  - name: inet
    ipv4: [83.118.168.0/31]
"""


async def test_a_cluster_of_one_family_refuses_dual_before_anything_is_spent(tmp_path: Path) -> None:
    """V-021"""
    flags = ("--service-cluster-ip-range=10.96.0.0/16",)
    async with DevCluster(ClusterOptions(apiserver_flags=flags)) as single, served(single, tmp_path) as stage:
        world = await fresh(stage)
        error = await world.refusal(annotations={"ip-family": "dual"})
        assert isinstance(error, Invalid)
        assert world.history() == []


async def test_a_full_zone_says_so(cluster: DevCluster, tmp_path: Path) -> None:
    """V-034"""
    zones = tmp_path / "zones.yaml"
    zones.write_text(TINY)
    api = Api(tmp_path, ("--zones", str(zones)))
    api.start()
    try:
        async with prepared(cluster) as client, operating(cluster, api):
            world = await fresh(World(client, api, ""))
            for number in range(2):
                await world.create(f"web-{number}")
            assert "no available prefix found for zone inet_v4" in await world.refused()
            await emptied(world)
    finally:
        api.stop()


async def test_a_private_authority_is_trusted_when_told(cluster: DevCluster, tmp_path: Path) -> None:
    """V-228: without the bundle the refusal has the TLS error."""
    life = timedelta(days=1)
    authority = make_authority(utc_now(), life)
    pair = issue(authority, ["127.0.0.1"], utc_now(), life)
    for name, content in (("ca", authority.certificate), ("crt", pair.certificate), ("key", pair.key)):
        (tmp_path / name).write_bytes(content)
    api = Api(tmp_path, ("--tls-cert", str(tmp_path / "crt"), "--tls-key", str(tmp_path / "key")))
    api.start()
    url = api.url.replace("http://", "https://")
    try:
        async with prepared(cluster) as client:
            world = await fresh(World(client, api, ""))
            async with operating(cluster, api, api_url=url):
                assert "CERTIFICATE_VERIFY_FAILED" in await world.refused()
            async with operating(cluster, api, api_url=url, api_ca_file=tmp_path / "ca"):
                assert address_of(await world.create())
            await emptied(world)
    finally:
        api.stop()


async def test_two_replicas_share_the_work(cluster: DevCluster, tmp_path: Path) -> None:
    """V-229: one leads, the other answers the webhooks; create, update and delete in a row."""
    api = Api(tmp_path)
    api.start()
    elected = {"leader_elect": True, "lease_namespace": "ipam-system", "lease_seconds": 3.0}
    try:
        async with prepared(cluster) as client, operating(cluster, api, **elected) as leader:
            world = await fresh(World(client, api, ""))
            assert leader.listening.webhook
            async with operating(cluster, api, webhook_url=f"https://127.0.0.1:{free_port()}", **elected):
                made = await asyncio.gather(*(world.create(f"web-{number}") for number in range(10)))
                await world.annotate("web-3", retention_period_days="2")
                address = address_of(made[3])
                assert api.entries(address)["web-3"].retention == 2
                await asyncio.gather(*(world.delete(f"web-{number}") for number in range(10) if number != 3))

                async def only_one_is_left() -> bool:
                    return api.addresses() == [address.partition("/")[0]]

                assert await eventually(only_one_is_left, 60)
                assert of(await world.get("web-3"), "retention-period-days") == "2"
            await emptied(world)
    finally:
        api.stop()
