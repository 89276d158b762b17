"""The Helm charts pass helm's own checks and install what `berth manifests` installs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from berth import manifests as make
from berth.central.metrics import ApiMetrics
from berth.central.settings import Backup
from berth.cli.main import app
from berth.devcluster import Binaries, DevCluster
from berth.manifests import Options
from berth.metrics import Metrics

Object = dict[str, Any]
Rendered = dict[tuple[str, str, str], Object]  # by kind, namespace and name
CHARTS = Path(__file__).parents[1] / "deploy" / "charts"
OPERATOR, API = CHARTS / "berth-operator", CHARTS / "berth-api"
CHOICES = [("metal3",), ("kubipam",), ("vip",), ("vitistack",), make.NEED_NOTHING, make.EVERY]
SWITCHES = ("serviceMonitor", "prometheusRule")
OPEN = {"open": True}  # what the API's chart wants to be told

pytestmark = pytest.mark.cluster  # helm comes with the control plane's programs


def helm(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    program = Binaries.locate(["helm"])["helm"]
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=check, timeout=180)


def template(chart: Path, **values: Any) -> Rendered:
    """Values by their key; `_` inside a key is a dot."""
    if chart == API and "identitiesSecret" not in values:
        values = OPEN | values
    flags = [f"{key.replace('_', '.')}={json.dumps(value)}" for key, value in values.items()]
    command = ("template", "b", str(chart), "-n", "berth-system", "--kube-version", "1.34.4")
    done = helm(*command, *(part for flag in flags for part in ("--set-json", flag)))
    return keyed(obj for obj in yaml.safe_load_all(done.stdout) if obj)


def refused(chart: Path, **values: Any) -> str:
    with pytest.raises(subprocess.CalledProcessError) as raised:
        template(chart, **values)
    return str(raised.value.stderr)


def keyed(objects: Any) -> Rendered:
    return {(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]): o for o in objects}


def one(rendered: Rendered, kind: str) -> Object:
    (found,) = (obj for (of, _, _), obj in rendered.items() if of == kind)
    return found


def container(workload: Object) -> Object:
    (found,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(found)


def volumes(workload: Object) -> dict[str, Object]:
    """Every volume that is mounted, by where; a mount without its volume is a KeyError."""
    spec = workload["spec"]
    there = {volume["name"]: volume for volume in spec["template"]["spec"].get("volumes") or ()}
    there |= {claim["metadata"]["name"]: claim for claim in spec.get("volumeClaimTemplates") or ()}
    return {mount["mountPath"]: there[mount["name"]] for mount in container(workload)["volumeMounts"]}


@pytest.mark.parametrize("chart", [OPERATOR, API], ids=lambda chart: chart.name)
def test_helm_lint_finds_nothing(chart: Path) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(chart)).stdout


def test_generated_files_are_up_to_date_and_there_are_no_others() -> None:
    wanted = make.chart_files(Options())
    present = [path for top in ("crds", "files") for path in (OPERATOR / top).rglob("*.yaml")]
    stored = {str(path.relative_to(OPERATOR)): path.read_text() for path in present}
    del stored["files/alerts.yaml"]
    assert stored == wanted, "run: make manifests"


# The operator


@pytest.mark.parametrize("dialects", CHOICES, ids=",".join)
def test_the_chart_grants_the_rights_the_manifests_grant(dialects: tuple[str, ...]) -> None:
    rendered = template(OPERATOR, dialects=dialects)
    wanted = keyed(make.rbac(Options(dialects=dialects)))
    kinds = {kind for kind, _, _ in wanted}
    assert {key for key in rendered if key[0] in kinds} == set(wanted)
    for key, obj in wanted.items():
        for part in ("rules", "roleRef", "subjects"):
            assert rendered[key].get(part) == obj.get(part)


@pytest.mark.parametrize("dialects", CHOICES, ids=",".join)
def test_the_chart_runs_the_operator_as_the_manifests_do(dialects: tuple[str, ...]) -> None:
    theirs = one(template(OPERATOR, dialects=dialects), "Deployment")
    ours = one(keyed(make.operator(Options(dialects=dialects))), "Deployment")
    assert theirs["spec"]["replicas"] == ours["spec"]["replicas"]
    pods = (obj["spec"]["template"]["spec"] for obj in (theirs, ours))
    assert len({json.dumps(pod["securityContext"], sort_keys=True) for pod in pods}) == 1
    for part in ("args", "securityContext", "resources", "livenessProbe", "readinessProbe", "ports"):
        assert container(theirs)[part] == container(ours)[part]


def test_flags_of_the_dialects_follow_their_values() -> None:
    values: Object = {"dialects": ["vip", "vitistack"], "vip_classes": ["a", "b"]}
    values |= {"vitistack_classes": ["c"], "vitistack_zone": "z", "vitistack_apiUrl": "https://i/v2"}
    values |= {
        "vitistack_tokenSecret": "t",
        "vitistack_caConfigMap": "ca",
        "extraArgs": ["--log-level=debug"],
    }
    deployment = one(template(OPERATOR, **values), "Deployment")
    flags = dict(flag.partition("=")[::2] for flag in container(deployment)["args"])
    assert (flags["--vip-classes"], flags["--vitistack-classes"]) == ("a,b", "c")
    assert (flags["--vitistack-zone"], flags["--api-url"]) == ("z", "https://i/v2")
    assert flags["--log-level"] == "debug"
    mounted = volumes(deployment)
    assert mounted[str(Path(flags["--api-token-file"]).parent)]["secret"] == {"secretName": "t"}
    assert mounted[str(Path(flags["--api-ca-file"]).parent)]["configMap"] == {"name": "ca"}


def test_the_webhooks_certificate_may_be_somebody_elses() -> None:
    deployment = one(template(OPERATOR, webhook_certSecret="from-cert-manager"), "Deployment")
    assert "--webhook-cert-dir=/certs" in container(deployment)["args"]
    assert volumes(deployment)["/certs"]["secret"] == {"secretName": "from-cert-manager"}


def test_cert_manager_makes_the_webhooks_certificate_as_the_manifests_have_it() -> None:
    """For upstream's own name of the Service: what was made for it goes on."""
    named = "ipam-webhook-service"
    rendered = template(OPERATOR, webhook_certManager_enabled=True, webhook_serviceName=named)
    wanted = keyed(make.operator(Options(cert_manager=True, webhook_service=named)))
    kinds = ("Issuer", "Certificate", "Service")
    assert {key for key in rendered if key[0] in kinds} == {key for key in wanted if key[0] in kinds}
    for key in (key for key in wanted if key[0] in kinds):
        assert rendered[key]["apiVersion"] == wanted[key]["apiVersion"]
        assert rendered[key]["spec"] == wanted[key]["spec"]
    theirs, ours = one(rendered, "Deployment"), one(wanted, "Deployment")
    assert container(theirs)["args"] == container(ours)["args"]
    assert volumes(theirs) == volumes(ours)


def test_an_issuer_of_the_cluster_signs_the_webhooks_certificate() -> None:
    issuer = {"kind": "ClusterIssuer", "name": "company"}
    rendered = template(OPERATOR, webhook_certManager_enabled=True, webhook_certManager_issuerRef=issuer)
    assert one(rendered, "Certificate")["spec"]["issuerRef"] == issuer
    assert "Issuer" not in {kind for kind, _, _ in rendered}
    both: Object = {"webhook_certManager_enabled": True, "webhook_certSecret": "mine"}
    assert "leave webhook.certSecret empty" in refused(OPERATOR, **both)


def test_metrics_over_https_have_a_port_and_a_certificate_of_their_own() -> None:
    values: Object = {"metrics_certSecret": "m", "serviceMonitor_enabled": True}
    rendered = template(OPERATOR, **values)
    deployment = one(rendered, "Deployment")
    flags = dict(flag.partition("=")[::2] for flag in container(deployment)["args"])
    assert (flags["--health-listen"], flags["--metrics-listen"]) == (":8080", ":8443")
    assert volumes(deployment)[flags["--metrics-cert-dir"]]["secret"] == {"secretName": "m"}
    ports = {port["name"]: port["containerPort"] for port in container(deployment)["ports"]}
    assert ports["metrics"] == 8443
    (service,) = (obj for (_, _, name), obj in rendered.items() if name == "berth-operator-metrics")
    assert service["spec"]["ports"] == [{"name": "metrics", "port": 8443, "targetPort": "metrics"}]
    (endpoint,) = one(rendered, "ServiceMonitor")["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]["ca"]["secret"]["name"]) == ("https", "m")
    assert {"port": "metrics"} in one(rendered, "NetworkPolicy")["spec"]["ingress"][1]["ports"]


# The API


def test_the_chart_runs_the_api_as_the_manifests_do() -> None:
    theirs = one(template(API), "StatefulSet")
    ours = one(keyed(make.api(Options())), "StatefulSet")
    pods = [obj["spec"]["template"]["spec"] for obj in (theirs, ours)]
    assert pods[0]["securityContext"] == pods[1]["securityContext"]
    for part in ("securityContext", "resources", "ports", "volumeMounts"):
        assert container(theirs)[part] == container(ours)[part]
    assert container(theirs)["env"] == [{"name": "BERTH_DATABASE", "value": "sqlite:////data/berth.db"}]


def test_several_api_replicas_on_sqlite_are_refused_with_a_sentence() -> None:
    assert "several replicas need PostgreSQL" in refused(API, replicas=2)


def test_postgresql_without_a_shared_pepper_is_refused_with_a_sentence() -> None:
    assert "PostgreSQL needs pepperSecret" in refused(API, database_urlSecret="db")


def test_an_api_that_nobody_said_is_open_is_refused_with_a_sentence() -> None:
    assert "say who may ask: identitiesSecret" in refused(API, open=False)
    flags = container(one(template(API, identitiesSecret="i"), "StatefulSet"))["args"]
    assert "--identities=/identities/identities.yaml" in flags


def test_only_its_own_namespace_reaches_the_api_and_it_reaches_nobody() -> None:
    """A rule without `from` lets everybody in; so does one with an empty list."""
    policy = one(template(API), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [{"ports": [{"port": "http"}], "from": [{"podSelector": {}}]}]
    assert [port["port"] for rule in policy["egress"] for port in rule["ports"]] == [53, 53]
    assert "ingress" not in one(template(API, networkPolicy_from=[]), "NetworkPolicy")["spec"]


def test_who_may_reach_the_api_and_whom_it_reaches_are_the_users_to_set() -> None:
    net = {"ipBlock": {"cidr": "10.0.0.0/8"}}
    database = {"to": [net], "ports": [{"port": 5432}]}
    values: Object = {"networkPolicy_from": [net], "networkPolicy_egress": [database]}
    policy = one(template(API, database_urlSecret="db", pepperSecret="p", **values), "NetworkPolicy")["spec"]
    assert policy["ingress"][0]["from"] == [net]
    assert policy["egress"][1] == database
    assert "NetworkPolicy" not in {kind for kind, _, _ in template(API, networkPolicy_enabled=False)}


def test_postgresql_that_no_rule_lets_the_api_reach_is_refused_with_a_sentence() -> None:
    assert "needs networkPolicy.egress" in refused(API, database_urlSecret="db", pepperSecret="p")


def test_only_the_operators_ports_are_reached() -> None:
    policy = one(template(OPERATOR), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert policy["ingress"] == [{"ports": [{"port": "webhook"}]}, {"ports": [{"port": "health"}]}]
    assert policy == one(keyed(make.operator(Options())), "NetworkPolicy")["spec"]
    peer, rule = {"ipBlock": {"cidr": "10.0.0.0/8"}}, {"ports": [{"port": 6443}]}
    policy = one(template(OPERATOR, networkPolicy_from=[peer], networkPolicy_egress=[rule]), "NetworkPolicy")
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert [rule["from"] for rule in policy["spec"]["ingress"]] == [[peer], [peer]]
    assert policy["spec"]["egress"] == [rule]


def test_the_api_servers_alone_reach_the_webhooks_and_others_the_metrics() -> None:
    cidrs = ["10.0.0.0/28", "fd00::1/128"]
    peer: Object = {"podSelector": {}}
    values: Object = {"networkPolicy_apiServerCIDRs": cidrs, "networkPolicy_from": [peer]}
    webhook, rest = one(template(OPERATOR, **values), "NetworkPolicy")["spec"]["ingress"]
    assert webhook == {
        "ports": [{"port": "webhook"}],
        "from": [{"ipBlock": {"cidr": cidr}} for cidr in cidrs],
    }
    assert rest == {"ports": [{"port": "health"}], "from": [peer]}
    ours = one(keyed(make.operator(Options(api_server_cidrs=tuple(cidrs)))), "NetworkPolicy")["spec"]
    assert ours["ingress"] == [webhook, {"ports": [{"port": "health"}]}]


def test_the_notes_say_who_can_reach_the_webhooks(cluster: DevCluster) -> None:
    warned = "ANY POD of the cluster can send its own reviews"
    assert warned in notes(cluster)
    assert "ask for pending addresses" in notes(cluster, "dialects={vitistack}")
    for closed in ("networkPolicy.apiServerCIDRs={10.0.0.1/32}", "webhook.clientCA.secretName=c"):
        assert warned not in notes(cluster, closed)


def notes(cluster: DevCluster, *values: str) -> str:
    """As `helm install` prints them: the only command that does, and it wants a cluster even to run dry."""
    flags = [part for value in values for part in ("--set", value)]
    command = ("install", "b", str(OPERATOR), "--dry-run=client", "-n", "berth-system")
    done = helm(*command, "--kubeconfig", str(cluster.kubeconfig), *flags)
    return done.stdout.partition("NOTES:")[2]


@pytest.mark.parametrize("where", ["secret", "configMap"])
def test_the_authority_of_the_webhooks_clients_comes_without_its_key(where: str) -> None:
    deployment = one(template(OPERATOR, **{f"webhook_clientCA_{where}Name": "c"}), "Deployment")
    assert "--webhook-client-ca=/client-ca/ca.crt" in container(deployment)["args"]
    volume = volumes(deployment)["/client-ca"][where]
    assert volume["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
    assert volume.get("secretName", volume.get("name")) == "c"
    both: Object = {"webhook_clientCA_secretName": "a", "webhook_clientCA_configMapName": "b"}
    assert "name one of both, secretName or configMapName" in refused(OPERATOR, **both)
    off = one(template(OPERATOR, webhook_enabled=False, webhook_clientCA_secretName="c"), "Deployment")
    assert not any("client-ca" in flag for flag in container(off)["args"])


@pytest.mark.parametrize("dialects", CHOICES, ids=",".join)
def test_the_chart_has_the_policies_of_the_manifests(dialects: tuple[str, ...]) -> None:
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    rendered = template(OPERATOR, dialects=dialects)
    wanted = keyed(make.policies(Options(dialects=dialects)))
    assert {key: obj for key, obj in rendered.items() if key[0] in kinds} == wanted
    assert not {key[0] for key in template(OPERATOR, admissionPolicies_enabled=False)} & set(kinds)


def test_the_policy_for_services_is_for_the_classes_that_are_served() -> None:
    values: Object = {"dialects": ["vitistack"], "vitistack_classes": ["a.example/x", "b"]}
    conditions = one(template(OPERATOR, **values), "ValidatingAdmissionPolicy")["spec"]["matchConditions"]
    assert "in 'a.example/x,b'.split(',')" in conditions[0]["expression"]
    assert "BERTH_" not in json.dumps(conditions)


def test_on_openshift_the_platform_chooses_the_user() -> None:
    theirs = one(template(OPERATOR, openshift=True), "Deployment")["spec"]["template"]["spec"]
    ours = one(keyed(make.operator(Options(openshift=True))), "Deployment")["spec"]["template"]["spec"]
    assert theirs["securityContext"] == ours["securityContext"]
    assert theirs["containers"][0]["securityContext"] == ours["containers"][0]["securityContext"]


def test_several_replicas_share_a_database_and_a_pepper() -> None:
    values: Object = {"database_urlSecret": "db", "pepperSecret": "p", "networkPolicy_enabled": False}
    rendered = template(API, replicas=3, **values)
    workload = one(rendered, "StatefulSet")
    assert workload["spec"]["replicas"] == 3
    reference = {"secretKeyRef": {"name": "db", "key": "url"}}
    assert container(workload)["env"] == [{"name": "BERTH_DATABASE", "valueFrom": reference}]
    assert volumes(workload)["/pepper"]["secret"]["secretName"] == "p"
    assert not workload["spec"].get("volumeClaimTemplates")
    assert one(rendered, "PodDisruptionBudget")["spec"]["minAvailable"] == 1


def test_zones_reach_the_api() -> None:
    rendered = template(API, zones=[{"name": "inet", "ipv4": ["10.0.0.0/24"]}])
    stored = yaml.safe_load(one(rendered, "ConfigMap")["data"]["zones.yaml"])
    assert stored == {"zones": [{"name": "inet", "ipv4": ["10.0.0.0/24"]}]}
    workload = one(rendered, "StatefulSet")
    assert "--zones=/zones/zones.yaml" in container(workload)["args"]
    assert volumes(workload)["/zones"]["configMap"] == {"name": "berth-api-zones"}


def test_replicas_roll_when_zones_change_and_a_single_one_is_left_to_reload() -> None:
    """A roll of one replica is an outage; what it mounts is read again while it runs."""
    several: Object = {"replicas": 2, "database_urlSecret": "db", "pepperSecret": "p", **EGRESS}

    def annotations(network: str, **values: Any) -> Object:
        workload = one(template(API, zones=[{"name": "inet", "ipv4": [network]}], **values), "StatefulSet")
        return dict(workload["spec"]["template"]["metadata"].get("annotations", {}))

    before, after = (annotations(network, **several) for network in ("10.0.0.0/24", "10.0.1.0/24"))
    assert before["checksum/zones"] != after["checksum/zones"]
    assert before == annotations("10.0.0.0/24", **several)
    assert annotations("10.0.0.0/24") == {}


def test_certificates_and_identities_reach_the_api() -> None:
    values: Object = {"tls_certSecret": "c", "tls_clientCertificates": True, "identitiesSecret": "i"}
    workload = one(template(API, clusterTokenSecret="t", **values), "StatefulSet")
    flags = dict(flag.partition("=")[::2] for flag in container(workload)["args"])
    mounted = volumes(workload)
    for flag, secret in (
        *(("--tls-cert", "c"), ("--tls-key", "c"), ("--client-ca", "c")),
        *(("--identities", "i"), ("--cluster-token-file", "t")),
    ):
        assert mounted[str(Path(flags[flag]).parent)]["secret"]["secretName"] == secret
    assert container(workload)["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert "needs tls.certSecret" in refused(API, tls_clientCertificates=True)


EGRESS: Object = {"networkPolicy_egress": [{"ports": [{"port": 443}]}]}


def test_tokens_of_the_other_systems_reach_the_api() -> None:
    """As files, which change under a running pod; an environment variable or a subPath would not."""
    values: Object = {"netbox_url": "https://n", "netbox_tokenSecret": "ns", "netbox_tag": "k8s"}
    values |= {"splunk_url": "https://s", "splunk_tokenSecret": "ss", "splunk_index": "net"}
    values |= {"ror_url": "https://r", "ror_tokenSecret": "rs", "ror_tokenKey": "api-key"}
    workload = one(template(API, **values, **EGRESS), "StatefulSet")
    flags = dict(flag.partition("=")[::2] for flag in container(workload)["args"])
    mounted = volumes(workload)
    for name, secret, key in (("netbox", "ns", "token"), ("splunk", "ss", "token"), ("ror", "rs", "api-key")):
        assert flags[f"--{name}-url"] == f"https://{name[0]}"
        file = Path(flags[f"--{name}-token-file"])
        items = [{"key": key, "path": file.name}]
        assert mounted[str(file.parent)]["secret"] == {"secretName": secret, "items": items}
    assert (flags["--netbox-tag"], flags["--splunk-index"]) == ("k8s", "net")
    assert str(Path(flags["--splunk-queue"]).parent) in mounted, "the root file system is read only"
    assert not any("subPath" in mount for mount in container(workload)["volumeMounts"])
    known = set(
        re.findall(r"--[a-z-]+", CliRunner().invoke(app, ["api", "--help"], terminal_width=200).output)
    )
    assert {flag for flag in flags if flag.startswith("--")} <= known


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"netbox_url": "https://n", "netbox_tokenSecret": "t"}, "netbox.url needs networkPolicy.egress"),
        ({"netbox_url": "https://n", **EGRESS}, "netbox.url needs netbox.tokenSecret"),
        ({"splunk_url": "https://s", "splunk_tokenSecret": "t", **EGRESS}, "splunk.url needs splunk.index"),
        ({"ror_tokenSecret": "t"}, "ror.tokenSecret needs ror.url"),
    ],
)
def test_half_of_another_system_is_refused_with_a_sentence(values: Object, sentence: str) -> None:
    assert sentence in refused(API, **values)


def test_backups_have_a_volume_of_their_own() -> None:
    rendered = template(API, backup_every="6h", backup_storage="1Gi", backup_storageClassName="slow")
    workload = one(rendered, "StatefulSet")
    flags = dict(flag.partition("=")[::2] for flag in container(workload)["args"])
    assert (flags["--backup-every"], flags["--backup-keep"]) == ("6h", str(Backup().keep))
    claim = one(rendered, "PersistentVolumeClaim")
    reference = {"claimName": claim["metadata"]["name"]}
    assert volumes(workload)[flags["--backup-dir"]]["persistentVolumeClaim"] == reference
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert claim["spec"]["storageClassName"] == "slow"
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_backups_may_go_to_a_claim_that_is_there() -> None:
    values: Object = {"backup_every": "1d", "backup_dir": "/b", "backup_keep": 30}
    rendered = template(API, backup_existingClaim="mine", **values)
    assert "PersistentVolumeClaim" not in {kind for kind, _, _ in rendered}
    workload = one(rendered, "StatefulSet")
    assert volumes(workload)["/b"]["persistentVolumeClaim"] == {"claimName": "mine"}
    assert {"--backup-every=1d", "--backup-dir=/b", "--backup-keep=30"} <= set(container(workload)["args"])
    several: Object = {"replicas": 2, "database_urlSecret": "db", "pepperSecret": "p", **EGRESS}
    assert "several replicas share one volume" in refused(API, backup_every="1d", **several)
    assert not any("backup" in flag for flag in container(one(template(API), "StatefulSet"))["args"])


def test_openshift_chooses_user_and_groups_itself() -> None:
    pod = one(template(API, openshift=True), "StatefulSet")["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


# Both


@pytest.mark.parametrize("chart", [OPERATOR, API], ids=lambda chart: chart.name)
def test_optional_objects_come_with_their_switches(chart: Path) -> None:
    plain = {kind for kind, _, _ in template(chart)}
    chosen = template(chart, **{f"{key}_enabled": True for key in SWITCHES})
    more = {kind for kind, _, _ in chosen} - plain
    assert more == {"ServiceMonitor", "PrometheusRule"}
    monitor = one(chosen, "ServiceMonitor")["spec"]
    ports = [
        port["name"]
        for (kind, _, _), obj in chosen.items()
        if kind == "Service"
        and monitor["selector"]["matchLabels"].items() <= obj["metadata"]["labels"].items()
        for port in obj["spec"]["ports"]
    ]
    assert monitor["endpoints"][0]["port"] in ports


@pytest.mark.parametrize("chart", [OPERATOR, API], ids=lambda chart: chart.name)
def test_resources_and_places_are_the_users_to_set(chart: Path) -> None:
    values: Object = {"resources": {"limits": {"memory": "2Gi"}}, "nodeSelector": {"disk": "fast"}}
    values |= {"imagePullSecrets": [{"name": "s"}], "image": "registry.local/berth:1"}
    rendered = template(chart, tolerations=[{"key": "k", "operator": "Exists"}], **values)
    workload = one(rendered, "Deployment" if chart == OPERATOR else "StatefulSet")
    pod = workload["spec"]["template"]["spec"]
    assert container(workload)["resources"]["limits"]["memory"] == "2Gi"
    assert container(workload)["image"] == "registry.local/berth:1"
    assert pod["nodeSelector"] == {"disk": "fast"}
    assert pod["tolerations"] == [{"key": "k", "operator": "Exists"}]
    assert pod["imagePullSecrets"] == [{"name": "s"}]


@pytest.mark.parametrize("chart", [OPERATOR, API], ids=lambda chart: chart.name)
def test_alerts_are_about_series_that_exist(chart: Path) -> None:
    rules = one(template(chart, prometheusRule_enabled=True), "PrometheusRule")["spec"]["groups"][0]["rules"]
    named = {name for rule in rules for name in re.findall(r"\bberth_\w+", rule["expr"])}
    metrics = Metrics() if chart == OPERATOR else ApiMetrics()
    families = {family.name for family in metrics.registry.collect()}
    bare = {re.sub(r"_(total|bucket|count)$", "", name) for name in named}
    assert bare <= families


@pytest.mark.parametrize("chart", [OPERATOR, API], ids=lambda chart: chart.name)
def test_alerts_choose_by_labels_that_their_series_have(chart: Path) -> None:
    metrics = Metrics() if chart == OPERATOR else ApiMetrics()
    there = metrics.registry._names_to_collectors
    text = (chart / "files" / "alerts.yaml").read_text()
    chosen = re.findall(r"\b(berth_\w+)\{([^}]*)\}", text)
    assert chosen
    for name, selector in chosen:
        labels = {*re.findall(r"(\w+)\s*[=!]", selector)} - {"le"}
        assert labels <= {*getattr(there[name], "_labelnames", ())}, f"{name}{{{selector}}}"


def test_the_operations_page_says_what_to_do_about_every_alert() -> None:
    page = (CHARTS.parents[1] / "docs" / "operations.md").read_text()
    for chart in (OPERATOR, API):
        groups = yaml.safe_load((chart / "files" / "alerts.yaml").read_text())["groups"]
        assert [
            rule["alert"] for group in groups for rule in group["rules"] if rule["alert"] not in page
        ] == []
