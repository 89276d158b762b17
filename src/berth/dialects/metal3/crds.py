"""The three Metal3 CRDs. Rules that CEL can say are said here, so that they hold while no webhook answers."""

from __future__ import annotations

from berth.dialects.crd import (
    AGE,
    Crd,
    Names,
    Schema,
    atomic,
    boolean,
    checked,
    column,
    conditions,
    integer,
    listing,
    mapping,
    record,
    root,
    rule,
    text,
)
from berth.dialects.metal3 import kinds
from berth.dialects.metal3.translate import LONGEST_NAME_PREFIX

OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4 = rf"({OCTET}\.){{3}}{OCTET}"
HEX = "[0-9A-Fa-f]{1,4}"
IPV6 = "|".join(
    [
        rf"({HEX}:){{7}}{HEX}",
        *(rf"({HEX}:){{1,{left}}}(:{HEX}){{1,{7 - left}}}" for left in range(6, 0, -1)),
        rf":((:{HEX}){{1,7}}|:)",
        rf"({HEX}:){{1,7}}:",
    ]
)
ADDRESS = rf"^({IPV4}|{IPV6})$"
SUBNET = rf"^({IPV4}/([0-9]|[1-2][0-9]|3[0-2])|({IPV6})/([0-9]|[0-9][0-9]|1[0-1][0-9]|12[0-8]))$"
# Bounds keep the cost of the CEL rules, which the API server estimates from sizes, within its budget.
MOST_ENTRIES = 16384
MOST_RESERVATIONS = 32768

CONTRACT_LABELS = {
    "clusterctl.cluster.x-k8s.io": "",  # clusterctl moves only what has it, however it was installed
    "cluster.x-k8s.io/provider": kinds.PROVIDER,
    "cluster.x-k8s.io/v1beta1": "v1alpha1",
    "cluster.x-k8s.io/v1beta2": "v1alpha1",
}
SAME_REFERENCE = rule(
    " && ".join(
        f"has(self.{field}) == has(oldSelf.{field}) "
        f"&& (!has(self.{field}) || self.{field} == oldSelf.{field})"
        for field in ("name", "__namespace__", "kind")  # CEL reserves the word namespace
    ),
    "cannot be modified",
)
NAMED = rule("has(self.name) && self.name != ''", "cannot be empty", fieldPath=".name")


def crds() -> tuple[Schema, ...]:
    return tuple(crd.manifest() for crd in (_pool(), _claim(), _address()))


def _ip(description: str = "") -> Schema:
    return text(description, pattern=ADDRESS, maxLength=45)


def _dns() -> Schema:
    return listing(_ip(), "DNS servers handed on with an address.")


def _prefix(description: str) -> Schema:
    return integer(description, minimum=0, maximum=128)


def _entry() -> Schema:
    fields = {
        "start": _ip("First address of the range."),
        "end": _ip("Last address of the range, inclusive."),
        "subnet": text("Bound of the range; its source where start is absent.", pattern=SUBNET, maxLength=49),
        "prefix": _prefix("Overrides spec.prefix for addresses of this entry; 0 is unset."),
        "gateway": _ip("Overrides spec.gateway for addresses of this entry."),
        "dnsServers": _dns(),
    }
    return checked(
        record(fields),
        rule(
            "has(self.start) || has(self.end) || has(self.subnet)",
            "pool entry must specify at least one of start, end, or subnet",
        ),
        rule(
            "has(self.start) || has(self.subnet) || !has(self.end)",
            "end alone gives no range: set start or subnet too",
        ),
        rule(
            "!has(self.prefix) || self.prefix <= 32 || (has(self.start) && self.start.contains(':')) "
            "|| (has(self.subnet) && self.subnet.contains(':'))",
            "prefix is too large for an IPv4 address",
            fieldPath=".prefix",
        ),
    )


def _name_prefix() -> Schema:
    plain = text("First part of the IPAddress objects' names.", minLength=1, maxLength=LONGEST_NAME_PREFIX)
    return checked(
        plain,
        rule("self == oldSelf", "cannot be modified"),
        rule(
            "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*-*$')",
            "must consist of lower case letters, digits, dashes and dots, and start with a letter or digit: "
            "it begins the names of IPAddress objects",
        ),
    )


def _pool_spec() -> Schema:
    strategy = text("Lowest free address first, or one at random.", enum=["sequential", "random"])
    strategy["default"] = "sequential"
    fields = {
        "clusterName": text("Cluster this pool belongs to; decides whether it is paused."),
        "pools": listing(_entry(), "Where addresses come from, in order.", maxItems=MOST_ENTRIES),
        "allocationStrategy": checked(strategy, rule("self == oldSelf", "cannot be modified after creation")),
        "preAllocations": mapping(
            _ip(), "Claim name → the address only that claim gets.", maxProperties=MOST_RESERVATIONS
        ),
        "prefix": _prefix("Prefix length handed on with an address; 0 is unset."),
        "gateway": _ip("Gateway handed on with an address."),
        "dnsServers": _dns(),
        "namePrefix": _name_prefix(),
    }
    return record(fields, ("namePrefix",))


def _pool_status() -> Schema:
    counts = {name: integer(format="int64") for name in ("total", "used", "free", "reserved", "outOfRange")}
    indexes = mapping(text(), "Claim name → address, of every allocation of both APIs.")
    return record(
        {
            # Field ownership per key would double the object's size.
            "indexes": atomic(indexes),
            "indexesTruncated": boolean("The pool has more allocations than fit into indexes."),
            "lastUpdated": text(format="date-time"),
            "ipAddresses": record(counts, description="How many addresses there are, and their use."),
            "conditions": conditions(),
        }
    )


def _pool() -> Crd:
    columns = (
        column(
            "Cluster",
            r".metadata.labels.cluster\.x-k8s\.io/cluster-name",
            description="Cluster to which this IPPool belongs",
        ),
        column("Total", ".status.ipAddresses.total", "integer"),
        column("Used", ".status.ipAddresses.used", "integer"),
        column("Free", ".status.ipAddresses.free", "integer"),
        AGE,
    )
    short = ("ipp", "ippool", "m3ipp", "m3ippool", "m3ippools", "metal3ipp", "metal3ippool", "metal3ippools")
    names = Names(short, ("cluster-api",))
    return Crd(kinds.POOL, root(_pool_spec(), _pool_status()), columns, names, CONTRACT_LABELS)


def _reference(description: str = "") -> Schema:
    fields = ("apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid")
    return atomic(record({name: text(maxLength=253) for name in fields}, description=description))


def _fixed_reference(description: str) -> Schema:
    return checked(_reference(description), SAME_REFERENCE, NAMED)


def _claim() -> Crd:
    spec = record({"pool": _fixed_reference("The IPPool asked.")}, ("pool",))
    status = record(
        {
            "address": _reference(),
            "errorMessage": text("Why there is no address."),
            "conditions": conditions(),
        }
    )
    short = (
        "ipc",
        "ipclaim",
        "m3ipc",
        "m3ipclaim",
        "m3ipclaims",
        "metal3ipc",
        "metal3ipclaim",
        "metal3ipclaims",
    )
    names = Names(short, ("cluster-api",))
    columns = (
        column("Pool", ".spec.pool.name"),
        column("Address", ".status.address.name"),
        column("Error", ".status.errorMessage"),
        AGE,
    )
    return Crd(kinds.CLAIM, root(spec, status), columns, names, CONTRACT_LABELS)


def _address() -> Crd:
    spec = record(
        {
            "claim": _fixed_reference("The claim this address fulfils."),
            "pool": _fixed_reference("The pool it comes from."),
            "address": checked(
                text(pattern=ADDRESS, maxLength=45), rule("self == oldSelf", "cannot be modified")
            ),
            "prefix": _prefix("Prefix length of its network."),
            "gateway": _ip(),
            "dnsServers": _dns(),
        },
        ("address", "claim", "pool"),
    )
    short = (
        "ipa",
        "ipaddress",
        "m3ipa",
        "m3ipaddress",
        "m3ipaddresses",
        "metal3ipa",
        "metal3ipaddress",
        "metal3ipaddresses",
    )
    columns = (
        column("Address", ".spec.address"),
        column("Pool", ".spec.pool.name"),
        column("Claim", ".spec.claim.name"),
        AGE,
    )
    names = Names(short, ("metal3",))
    return Crd(kinds.ADDRESS, root(spec), columns, names, CONTRACT_LABELS, status=False)
