"""The generated files of the operator's Helm chart: CRDs, and per dialect what it may do and registers.

crds/DIALECT.yaml             files/rules/DIALECT.yaml      cluster-wide
files/webhooks/DIALECT.yaml   files/local/DIALECT.yaml      by namespace: rules there and nowhere else
files/policies/DIALECT.yaml   with two words that the chart fills in: its namespace, and the dialect's classes
"""

from __future__ import annotations

import yaml

from berth.dialects.dialect import Dialect
from berth.manifests.options import EVERY, Options, render, render_list
from berth.manifests.policies import policies_of
from berth.manifests.rights import event_rules, local_rules, own_rules, registered_by
from berth.settings import Settings

NAMESPACE = "BERTH_NAMESPACE"


def chart_files(options: Options) -> dict[str, str]:
    """Of all dialects, whichever are chosen: the chart's own values choose."""
    files = {"files/rules/events.yaml": render_list(event_rules())}
    files["files/rules/own.yaml"] = render_list(own_rules())
    for dialect in Options(dialects=EVERY).chosen():
        files |= _of(dialect)
    return files


def _of(dialect: Dialect) -> dict[str, str]:
    files = {
        f"files/rules/{dialect.name}.yaml": render_list(dialect.rules()),
        f"files/webhooks/{dialect.name}.yaml": render_list(registered_by(dialect)),
    }
    if found := policies_of(dialect, Options(namespace=NAMESPACE), _classes_left_open(dialect)):
        files[f"files/policies/{dialect.name}.yaml"] = render(found)
    if dialect.crds():
        files[f"crds/{dialect.name}.yaml"] = render(dialect.crds())
    if local_rules(dialect):
        files[f"files/local/{dialect.name}.yaml"] = yaml.safe_dump(
            dict(local_rules(dialect)), sort_keys=False
        )
    return files


def _classes_left_open(dialect: Dialect) -> Settings:
    if not dialect.service_classes(Settings()):
        return Settings()
    return Settings(parts=(dialect.settings(classes=(f"BERTH_{dialect.name.upper()}_CLASSES",)),))
