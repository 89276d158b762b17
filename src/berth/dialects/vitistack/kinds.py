"""The vitistack dialect's literal names: annotations, objects, webhooks. Users and upstream's objects carry
them, so they are what they are.
"""

from __future__ import annotations

from berth.kube.resource import Resource

SERVICE = Resource("", "v1", "Service", "services")
SECRET = Resource("", "v1", "Secret", "secrets")
CONFIG_MAP = Resource("", "v1", "ConfigMap", "configmaps")
NAMESPACE = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
POD = Resource("", "v1", "Pod", "pods")
POOL = Resource("metallb.io", "v1beta1", "IPAddressPool", "ipaddresspools")

PREFIX = "ipam.vitistack.io/"
ADDRESSES = PREFIX + "addresses"
SHARING_KEY = PREFIX + "allow-local-shared-ip"
DENY = PREFIX + "deny-external-cleanup"
FAMILY = PREFIX + "ip-family"
RETENTION = PREFIX + "retention-period-days"
SECRET_NAME = PREFIX + "secret"
ZONE = PREFIX + "zone"
CONDITION = "berth.dev/AddressAllocated"  # on a Service that waits, and only while it waits

METALLB_POOL = "metallb.io/address-pool"
METALLB_ADDRESSES = "metallb.io/loadBalancerIPs"
METALLB_KEY = "metallb.io/allow-shared-ip"
METALLB = (METALLB_POOL, METALLB_ADDRESSES, METALLB_KEY)
# Of MetalLB before 0.14.9, which reads no others; later ones read them where the new name is missing.
OLD_METALLB = tuple(key.replace("metallb.io/", "metallb.universe.tf/") for key in METALLB)
METALLB_KEYS = (METALLB_KEY, OLD_METALLB[2])

DEFAULT_SECRET = "default"  # the word in the annotation, and the Secret's name in our namespace
SECRET_KEY = "secret"  # the key inside a Secret
RECORD_LABEL = "ipam.vitistack.io/record"
RELEASE_ABSENT = "ipam.vitistack.io/release-absent"  # on our namespace: a person agrees to a mass release
COPY_OF = "ipam.vitistack.io/copy-of"  # on copies of secrets: the UID of the Service
MADE_BY = "ipam.vitistack.io/made-by"  # annotation on pools that are ours to delete
MERGED = "ipam.vitistack.io/merged"  # annotation on pools: which of their ranges are ours

MUTATING_CONFIGURATION = "ipam-mutating-webhook-configuration"
VALIDATING_CONFIGURATION = "ipam-validating-webhook-configuration"
MUTATE_PATH = "/mutate--v1-service"
VALIDATE_PATH = "/validate--v1-service"
