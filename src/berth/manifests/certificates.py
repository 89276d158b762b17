"""The webhooks' certificate from cert-manager, for those who want all certificates of a cluster in one place.

    Issuer, self-signed ─► Certificate of a CA ─► Issuer of that CA ─► Certificate of the webhooks ─► Secret

The CA between stays when the certificate is renewed, so that a replica which has not seen the new one yet is
still trusted. The operator finds the CA beside the certificate and puts it into the webhook configurations.
"""

from __future__ import annotations

from berth.manifests.options import OPERATOR, WEBHOOK, Object, Options

CA = f"{WEBHOOK}-ca"
SELF_SIGNED = f"{WEBHOOK}-self-signed"
TLS_SECRET = f"{WEBHOOK}-tls"
CERTS = "/certs"  # where the Secret is mounted
TEN_YEARS = "87600h"


def certificates(options: Options) -> list[Object]:
    """None where the operator makes its own."""
    if not options.cert_manager:
        return []
    authority = {"isCA": True, "commonName": CA, "duration": TEN_YEARS}
    return [
        _made(options, "Issuer", SELF_SIGNED, {"selfSigned": {}}),
        _certificate(options, CA, CA, SELF_SIGNED, authority),
        _made(options, "Issuer", CA, {"ca": {"secretName": CA}}),
        _certificate(options, WEBHOOK, TLS_SECRET, CA, {"dnsNames": _names(options)}),
    ]


def _names(options: Options) -> list[str]:
    name = f"{options.webhook_service}.{options.namespace}.svc"
    return [name, f"{name}.cluster.local"]


def _certificate(options: Options, name: str, secret: str, issuer: str, spec: Object) -> Object:
    signed = {"secretName": secret, "issuerRef": {"kind": "Issuer", "name": issuer}}
    return _made(options, "Certificate", name, {**spec, **signed})


def _made(options: Options, kind: str, name: str, spec: Object) -> Object:
    head = {"apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": options.meta(name, OPERATOR)}
    return {**head, "spec": spec}
