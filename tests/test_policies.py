"""What the API server itself refuses, with no operator running and no webhook registered."""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from tests.support.cluster import Kubectl, KubectlFailed
from tests.support.operator import admin, crds_of, eventually, install

from berth import manifests as make
from berth.devcluster import DevCluster
from berth.dialects.cel import ADDRESS, HOSTS
from berth.dialects.vip import admit as vip_admit
from berth.dialects.vip import kinds as vip_kinds
from berth.dialects.vitistack import messages
from berth.dialects.vitistack.messages import No
from berth.dialects.vitistack.service_annotations import read_addresses
from berth.errors import InvalidText
from berth.manifests import Options
from berth.net import parse_address

Object = dict[str, Any]
ACCOUNT = "system:serviceaccount:berth-system:berth-operator"
TENANT = "system:serviceaccount:shop:tenant"
OPERATOR = (f"--as={ACCOUNT}", "--as-group=system:masters")
ADMINISTRATOR = ("--as=ann", "--as-group=system:masters")
RESTORERS = (("--as=rita", "--as-group=berth:restorers"), ("--as=velero",))  # by the group, and by the verb
PREFIX = "ipam.vitistack.io/"
on_the_server = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


@dataclass
class Plain:
    """A cluster with the CRDs and the policies, and nothing that runs."""

    kubectl: Kubectl
    made: int = 0

    async def write(self, obj: Object, who: tuple[str, ...] = ADMINISTRATOR, verb: str = "create") -> None:
        await self.kubectl(verb, *who, "-f", "-", stdin=json.dumps(obj))

    async def delete(self, kind: str, name: str, who: tuple[str, ...] = ADMINISTRATOR) -> None:
        await self.kubectl("delete", *who, kind, name, "--wait=false")

    def name(self) -> str:
        self.made += 1
        return f"one-{self.made}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plain() -> AsyncIterator[Plain]:
    async with DevCluster() as own, admin(own) as client:
        await install(client, crds_of("metal3", "vip"))
        stage = Plain(Kubectl(own))
        written = ["--resource=ips.paas.org,virtualips.paas.org"]
        verbs = [f"--verb={verb}" for verb in ("create", "get", "update", "patch", "delete")]
        await stage.kubectl("create", "clusterrole", "writer", *verbs, *written)
        await stage.kubectl("create", "clusterrole", "restorer", "--verb=restore", *written)
        writers = ("--user=tina", "--user=rita", "--user=velero")
        await stage.kubectl("create", "clusterrolebinding", "writers", "--clusterrole=writer", *writers)
        await stage.kubectl(
            "create", "clusterrolebinding", "restorers", "--clusterrole=restorer", "--user=velero"
        )
        # VirtualIPs that are there already: nobody makes new ones.
        for name, state in (("settled", "Valid"), ("moving", "Valid"), ("failed", "Error")):
            vip = virtual_ip(name, migrating=name == "moving")
            await stage.write(vip)
            status = json.dumps({"status": {"state": state}})
            await stage.kubectl(
                "patch", "virtualip", name, "--subresource=status", "--type=merge", "-p", status
            )
        await stage.kubectl.apply(make.render(make.policies(Options(dialects=make.EVERY))))
        # The API server takes a policy over a moment later; the last of them is waited for.
        for obj in (ip("10.9.9.9"), virtual_ip("new"), claim("bad", "x"), service("bad", zone="")):
            await eventually(partial(_is_refused, stage, obj))
        yield stage


async def _is_refused(stage: Plain, obj: Object) -> bool:
    try:
        await stage.kubectl("create", *ADMINISTRATOR, "--dry-run=server", "-f", "-", stdin=json.dumps(obj))
    except KubectlFailed as failed:
        return "ValidatingAdmissionPolicy" in str(failed)
    # A dry run of a Service is not looked at, as by the webhooks: then the real thing, taken away again.
    if obj["kind"] == "Service":
        try:
            await stage.write(obj)
        except KubectlFailed:
            return True
        await stage.delete("service", obj["metadata"]["name"])
    return False


def ip(address: str, owner: str = "", **labels: str) -> Object:
    about: Object = {"name": address, "labels": labels}
    if owner:
        about["annotations"] = {vip_kinds.OWNER: owner}
    return {"apiVersion": "paas.org/v1", "kind": "IP", "metadata": about}


def _edited(obj: Object, **metadata: Any) -> Object:
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


def virtual_ip(
    name: str, *, migrating: bool = False, ip: str = "10.0.0.7", service: str = "web", held: bool = False
) -> Object:
    marks = {"virtualips.paas.org/migrate": ""} if migrating else {}
    spec = {"service": service, "ip": ip}
    about: Object = {"name": name, "namespace": "default", "annotations": marks}
    if held:
        about["finalizers"] = [vip_kinds.IP_FINALIZER]
    return {"apiVersion": "paas.org/v1", "kind": "VirtualIP", "metadata": about, "spec": spec}


def claim(name: str, wanted: str | None) -> Object:
    marks = {} if wanted is None else {"ipAddress": wanted}
    about = {"name": name, "namespace": "default", "annotations": marks}
    spec = {"pool": {"name": "p"}}
    return {"apiVersion": "ipam.metal3.io/v1alpha1", "kind": "IPClaim", "metadata": about, "spec": spec}


def address(name: str, wanted: str) -> Object:
    about = {"name": name, "namespace": "default", "annotations": {"ipAddress": wanted}}
    spec = {"pool": {"name": "p"}, "claim": {"name": "c"}, "address": "10.0.0.1"}
    return {"apiVersion": "ipam.metal3.io/v1alpha1", "kind": "IPAddress", "metadata": about, "spec": spec}


def service(name: str, kind: str = "LoadBalancer", klass: str = "", **said: str) -> Object:
    marks = {PREFIX + key.replace("_", "-"): text for key, text in said.items()}
    about = {"name": name, "namespace": "default", "annotations": marks}
    spec: Object = {"type": kind, "ports": [{"port": 80}], **({"loadBalancerClass": klass} if klass else {})}
    return {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec}


# IP objects of vip


@pytest.mark.cluster
@pytest.mark.asyncio(loop_scope="session")
class TestIps:
    async def test_the_operator_writes_them_and_nobody_else(self, plain: Plain) -> None:
        await plain.write(ip("10.1.0.1"), OPERATOR)
        await plain.write(ip("10.1.0.1", ipgroup="g"), OPERATOR, "apply")
        for verb, obj in (("create", ip("10.1.0.2")), ("apply", ip("10.1.0.1", ipgroup="other"))):
            done = "create" if verb == "create" else "update"
            told = f"user ann cannot {done} ip objects, only {ACCOUNT} is allowed"
            with pytest.raises(KubectlFailed, match=told):
                await plain.write(obj, verb=verb)
        with pytest.raises(KubectlFailed, match=f"user ann cannot delete ip objects, only {ACCOUNT}"):
            await plain.delete("ips.paas.org", "10.1.0.1")
        await plain.delete("ips.paas.org", "10.1.0.1", OPERATOR)

    @pytest.mark.parametrize("who", RESTORERS, ids=["group", "verb"])
    async def test_a_restorer_puts_them_back_and_does_no_more(
        self, plain: Plain, who: tuple[str, ...]
    ) -> None:
        """By the group or by the verb; afterwards it edits what makes no lease, as Velero does."""
        user = who[0].removeprefix("--as=")
        lease = ip("10.1.0.3", "shop/web", ipgroup="g")
        for bad in (ip("10.1.0.3"), ip("10.1.0.3", "web"), ip("10.1.0.3", "shop/")):
            with pytest.raises(KubectlFailed, match=f"user {user} cannot create ip objects"):
                await plain.write(bad, who)
        await plain.write(lease, who)
        await plain.write({**lease, "spec": {}}, who, "replace")
        for change in (
            ip("10.1.0.3", "shop/mine", ipgroup="g"),
            ip("10.1.0.3", "shop/web", ipgroup="other"),
            ip("10.1.0.3", "shop/web"),
            _edited(lease, ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]),
            _edited(lease, finalizers=["example.org/mine"]),
        ):
            with pytest.raises(KubectlFailed, match=f"user {user} cannot update ip objects"):
                await plain.write(change, who, "replace")
        with pytest.raises(KubectlFailed, match=f"user {user} cannot delete ip objects"):
            await plain.delete("ips.paas.org", "10.1.0.3", who)
        await plain.delete("ips.paas.org", "10.1.0.3", OPERATOR)

    async def test_who_may_write_them_by_rbac_alone_makes_none_with_an_owner(self, plain: Plain) -> None:
        with pytest.raises(KubectlFailed, match="user tina cannot create ip objects"):
            await plain.write(ip("10.1.0.5", "shop/web"), ("--as=tina",))

    async def test_another_namespaces_account_of_the_same_name_is_nobody(self, plain: Plain) -> None:
        who = ("--as=system:serviceaccount:shop:berth-operator", "--as-group=system:masters")
        with pytest.raises(KubectlFailed, match="only system:serviceaccount:berth-system:berth-operator"):
            await plain.write(ip("10.1.0.4"), who)


# VirtualIPs


@pytest.mark.cluster
@pytest.mark.asyncio(loop_scope="session")
class TestVirtualIps:
    async def test_no_new_one_is_made_not_even_by_the_operator(self, plain: Plain) -> None:
        for who in (ADMINISTRATOR, OPERATOR, *RESTORERS):
            with pytest.raises(KubectlFailed, match=vip_admit.DEPRECATED):
                await plain.write(virtual_ip("new"), who)
        with pytest.raises(KubectlFailed, match=vip_admit.DEPRECATED):
            await plain.write(virtual_ip("new", held=True), ("--as=tina",))

    @pytest.mark.parametrize("who", RESTORERS, ids=["group", "verb"])
    async def test_a_restorer_puts_one_back_with_its_finalizer(
        self, plain: Plain, who: tuple[str, ...]
    ) -> None:
        await plain.write(virtual_ip(plain.name(), held=True), who)

    @pytest.mark.parametrize(
        ("changed", "text"),
        [
            (virtual_ip("moving"), vip_admit.NOT_STOPPED),
            (virtual_ip("failed", migrating=True), vip_admit.NOT_VALID),
            (virtual_ip("moving", migrating=True, service="other"), vip_admit.SERVICE_FIXED),
            (virtual_ip("settled", ip="10.0.0.8"), vip_admit.IP_FIXED),
            (virtual_ip("moving", service="other", ip="10.0.0.8"), vip_admit.NOT_STOPPED),  # the first of all
        ],
    )
    async def test_what_stays_of_one_cannot_be_changed(
        self, plain: Plain, changed: Object, text: str
    ) -> None:
        with pytest.raises(KubectlFailed, match=re.escape(text)):
            await plain.write(changed, verb="replace")

    async def test_a_valid_one_is_labelled_and_begins_to_migrate(self, plain: Plain) -> None:
        await plain.kubectl("label", "virtualip", "settled", "a=b", *ADMINISTRATOR)
        await plain.write(virtual_ip("settled", service="other"), verb="replace")
        await plain.write(virtual_ip("settled", service="other", migrating=True), verb="replace")


# The annotation of metal3


@pytest.mark.cluster
@pytest.mark.asyncio(loop_scope="session")
class TestWantedAddresses:
    @pytest.mark.parametrize(
        "wanted", ["10.0.0.300", "010.0.0.1", "fe80::1%eth0", "10.0.0.1/32", "a", "::1::"]
    )
    async def test_what_is_no_address_is_not_asked_for(self, plain: Plain, wanted: str) -> None:
        told = f'metadata.annotations.ipAddress: Invalid value: "{wanted}": is not a valid IP address'
        for obj in (claim(plain.name(), wanted), address(plain.name(), wanted)):
            with pytest.raises(KubectlFailed, match=re.escape(told)):
                await plain.write(obj)

    @pytest.mark.parametrize("wanted", ["10.0.0.1", "2001:db8::1", "::ffff:10.0.0.1", "FE80::A", "", None])
    async def test_an_address_and_nothing_at_all_are_fine(self, plain: Plain, wanted: str | None) -> None:
        await plain.write(claim(plain.name(), wanted))

    async def test_a_claim_cannot_change_to_what_is_none(self, plain: Plain) -> None:
        name = plain.name()
        await plain.write(claim(name, "10.0.0.1"))
        with pytest.raises(KubectlFailed, match="is not a valid IP address"):
            await plain.write(claim(name, "ten"), verb="replace")


# Services of vitistack


@pytest.mark.cluster
@pytest.mark.asyncio(loop_scope="session")
class TestServices:
    @pytest.mark.parametrize(
        ("said", "text"),
        [
            ({"ip_family": "IPv4"}, messages.unknown_family("IPv4")),
            ({"addresses": "10.0.0.1, ten"}, "invalid ip-address detected for Service: {name}: ten"),
            ({"addresses": "10.0.0.0/24"}, "invalid ip-address detected for Service: {name}: 10.0.0.0/24"),
            (
                {"zone": ""},
                f"annotation {PREFIX}zone of Service {{name}} is empty: name a zone, or leave it out",
            ),
            ({"secret": ""}, f"annotation {PREFIX}secret of Service {{name}} is empty: name a Secret"),
            ({"retention_period_days": "1.5"}, messages.BAD_RETENTION),
            ({"retention_period_days": "31"}, messages.RETENTION_OVER),
            ({"retention_period_days": "-1"}, messages.RETENTION_UNDER),
            ({"deny_external_cleanup": "yes"}, messages.bad_deny("{name}")),
        ],
    )
    async def test_what_every_operator_refuses_is_refused(
        self, plain: Plain, said: dict[str, str], text: str
    ) -> None:
        name = plain.name()
        with pytest.raises(KubectlFailed, match=re.escape(text.replace("{name}", name))):
            await plain.write(service(name, **said))

    async def test_what_an_operator_takes_is_taken(self, plain: Plain) -> None:
        said = {
            "ip_family": "dual",
            "addresses": " 10.0.0.1/32 , 2001:db8::1",
            "zone": "z",
            "secret": "s",
            "retention_period_days": "+30",
            "deny_external_cleanup": "T",
        }
        await plain.write(service(plain.name(), **said))
        await plain.write(service(plain.name()))
        await plain.write(service(plain.name(), addresses=" "))

    async def test_services_of_others_are_left_alone(self, plain: Plain) -> None:
        await plain.write(service(plain.name(), kind="ClusterIP", zone=""))
        await plain.write(service(plain.name(), klass="paas.org/vip", zone=""))
        excluded = service(plain.name(), zone="")
        excluded["metadata"]["namespace"] = "kube-system"
        await plain.write(excluded)

    async def test_an_old_mistake_does_not_stop_other_changes(self, plain: Plain) -> None:
        """Turned into a LoadBalancer by an operator of before, or before the policy was there."""
        name = plain.name()
        await plain.write(service(name, kind="ClusterIP", retention_period_days="many"))
        await plain.write(service(name, retention_period_days="many"), verb="apply")
        with pytest.raises(KubectlFailed, match=messages.BAD_RETENTION):
            await plain.write(service(name, retention_period_days="more"), verb="apply")


# The patterns say what the code says


def _mangled(rng: random.Random) -> str:
    """Something near an address."""
    groups = [f"{rng.randrange(1 << rng.choice((4, 8, 16))):x}" for _ in range(rng.randint(0, 9))]
    text = ":".join(groups)
    if rng.random() < 0.7 and groups:
        cut = rng.randint(0, len(groups))
        text = ":".join(groups[:cut]) + "::" + ":".join(groups[cut:])
    if rng.random() < 0.4:
        text += (":" if text and not text.endswith(":") else "") + _quad(rng)
    if rng.random() < 0.3:
        text = _quad(rng)
    if rng.random() < 0.3 and text:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice("0:.%/ 1g") + text[at + rng.randint(0, 1) :]
    return text


def _quad(rng: random.Random) -> str:
    return ".".join(
        str(rng.choice((0, 9, 10, 99, 199, 255, 256, "01"))) for _ in range(rng.choice((4, 4, 4, 3, 5)))
    )


def test_the_pattern_for_an_address_is_the_parser(seed: int) -> None:
    rng, good = random.Random(seed), 0
    for _ in range(50_000):
        text = _mangled(rng)
        try:
            parse_address(text)
            right = True
        except InvalidText:
            right = False
        good += right
        assert (re.fullmatch(ADDRESS[1:-1], text) is not None) == right, text
    assert good > 5_000


def test_the_pattern_for_a_services_addresses_refuses_nothing_the_webhooks_take(seed: int) -> None:
    """Go's spelling of blanks is not Python's; and one of each family is for the webhooks to see."""
    pattern = re.compile(HOSTS[1:-1].replace(r"\pZ", r"\u2000-\u200a\xa0"))
    rng, good = random.Random(seed), 0
    for _ in range(20_000):
        parts = [_mangled(rng) + rng.choice(("", "", "/32", "/128", "/24")) for _ in range(rng.randint(1, 2))]
        text = rng.choice((",", " , ", ",\u2003")).join(parts)
        try:
            read_addresses(text, "s")
            right = True
        except No as no:
            right = no.message == messages.ONE_PER_FAMILY
        good += right
        if pattern.fullmatch(text) is None:
            assert not right, text
        elif not right:
            assert "ffff" in text.lower(), text
    assert good > 500
