"""The dialects' ValidatingAdmissionPolicies, each with its binding: they hold while no operator runs."""

from __future__ import annotations

from berth.dialects.dialect import Dialect
from berth.manifests.options import OPERATOR, Object, Options
from berth.settings import Settings

API_VERSION = "admissionregistration.k8s.io/v1"


def policies(options: Options) -> list[Object]:
    """Of the chosen dialects."""
    return [obj for dialect in options.chosen() for obj in policies_of(dialect, options)]


def policies_of(dialect: Dialect, options: Options, settings: Settings | None = None) -> list[Object]:
    account = f"system:serviceaccount:{options.namespace}:{OPERATOR}"
    specs = dialect.policies(settings or Settings(), account)
    return [obj for name, spec in specs.items() for obj in _bound(options, name, spec)]


def _bound(options: Options, name: str, spec: Object) -> tuple[Object, Object]:
    """Without a binding a policy has no effect; without parameters there is one for the whole cluster."""
    about = {"name": name, "labels": options.labels(OPERATOR)}
    head = {"apiVersion": API_VERSION, "metadata": about}
    policy = {**head, "kind": "ValidatingAdmissionPolicy", "spec": {"failurePolicy": "Fail", **spec}}
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return policy, {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding}
