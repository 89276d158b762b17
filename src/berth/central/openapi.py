"""The OpenAPI document, written beside the route table; a test and schemathesis hold the two together."""

from __future__ import annotations

from functools import cache
from typing import Any

from berth import __version__

Json = dict[str, Any]


@cache
def document() -> Json:
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "IPAM-API",
            "version": __version__,
            "description": "A ledger of addresses for many clusters. Who knows an address's secret owns it.",
        },
        "servers": [{"url": "/v2"}],
        "paths": {
            "/address": {"post": _post_address()},
            "/service": {"delete": _delete_service()},
            "/cluster": {"delete": _delete_cluster()},
        },
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _post_address() -> Json:
    return {
        "operationId": "registerAddress",
        "summary": "Register, update or recall an address, or replace its secret",
        "requestBody": _body("Request"),
        "responses": {
            "200": _answer("Registered or updated", "Success"),
            **_refusals(
                {
                    "400": "A fault in the request; the message names it",
                    "401": "With identities switched on: no token, or a wrong one",
                    "403": "The cluster's quota is used up, or the identity is bound to other clusters",
                    "404": "No address with this secret, zone and address",
                    "409": "The secret cannot be replaced: others use the address",
                    "503": "Nothing free in the zone, or the ledger cannot answer now",
                }
            ),
        },
    }


def _delete_service() -> Json:
    return {
        "operationId": "releaseService",
        "summary": "Release one service's hold on an address; it is kept for the retention period",
        "requestBody": _body("Request"),
        "responses": {
            "200": _answer("The service's entry expires", "Success"),
            **_refusals(
                {
                    "400": "A fault in the request; the message names it",
                    "401": "With identities switched on: no token, or a wrong one",
                    "403": "The identity is bound to other clusters or zones",
                    "404": "No such address with this secret, or the service is not on it",
                    "503": "The ledger cannot answer now",
                }
            ),
        },
    }


def _delete_cluster() -> Json:
    return {
        "operationId": "releaseCluster",
        "summary": "Release all services of a cluster, except those that deny external clean-up",
        "security": [{"token": []}],
        "requestBody": _body("Cluster"),
        "responses": {
            "200": _answer("The cluster's entries expire", "ClusterSuccess"),
            "401": _answer("No token, or a wrong one", "TokenError"),
            **_refusals(
                {
                    "400": "A fault in the request; the message names it",
                    "404": "No entries of this cluster, or the route is switched off",
                    "503": "The ledger cannot answer now",
                }
            ),
        },
    }


def _refusals(meanings: dict[str, str]) -> Json:
    everywhere = {
        "408": "The body came too slowly",
        "413": "The body is too large",
        "429": "Too many requests; Retry-After says how long to wait",
    }
    return {status: _answer(text, "Failure") for status, text in sorted((everywhere | meanings).items())}


def _body(schema: str) -> Json:
    return {"required": True, "content": {"application/json": {"schema": _ref(schema)}}}


def _answer(description: str, schema: str) -> Json:
    return {"description": description, "content": {"application/json": {"schema": _ref(schema)}}}


def _ref(schema: str) -> Json:
    return {"$ref": f"#/components/schemas/{schema}"}


def _text(description: str, **more: Any) -> Json:
    return {"type": "string", "description": description, **more}


def _name(description: str) -> Json:
    return _text(description, minLength=1, maxLength=512)


def _schemas() -> Json:
    message = {"message": {"type": "string"}}
    return {
        "Request": _request(),
        "Service": _service(),
        "Cluster": {
            "type": "object",
            "required": ["cluster_id"],
            "properties": {"cluster_id": _name("UID of the cluster's namespace kube-system")},
        },
        "Success": {
            "type": "object",
            "required": ["message", "address"],
            "properties": {**message, "address": _text("Host CIDR", example="83.118.168.10/32")},
        },
        "ClusterSuccess": {
            "type": "object",
            "required": ["message", "cluster_id"],
            "properties": {
                **message,
                "cluster_id": {"type": "string"},
                "expired": {"type": "integer"},
                "skipped": {"type": "integer"},
            },
        },
        "Failure": {
            "type": "object",
            "required": ["message"],
            "properties": {**message, "reason": _text("One word for programs", example="NoMatch")},
        },
        "TokenError": {
            "type": "object",
            "required": ["error"],
            "properties": {"error": {"type": "string"}},
        },
    }


def _request() -> Json:
    secret = {"minLength": 8, "maxLength": 64, "format": "password"}
    return {
        "type": "object",
        "required": ["secret", "zone", "ip_family", "service"],
        "properties": {
            "secret": _text("Who holds it owns the address", **secret),
            "new_secret": _text("Replaces the secret, if this service is alone on the address", **secret),
            "zone": _text("A configured zone", example="inet", minLength=1),
            "ip_family": {"type": "string", "enum": ["ipv4", "ipv6"]},
            "address": _text("A certain address, with or without /32 or /128; absent: the next free one"),
            "service": _ref("Service"),
            "pending": {
                "type": "boolean",
                "description": "Only reserve: lapses by itself unless a later POST without it confirms.",
            },
        },
    }


def _service() -> Json:
    return {
        "type": "object",
        "required": ["service_name", "namespace_id", "cluster_id"],
        "properties": {
            "service_name": _name("Name of the Service"),
            "namespace_id": _name("UID of its namespace"),
            "cluster_id": _name("UID of the namespace kube-system"),
            "retention_period_days": {"type": "integer", "minimum": 0, "maximum": 30, "default": 0},
            "deny_external_cleanup": {"type": "boolean", "default": False},
            "uid": _text("UID of the Service; a release by an earlier one of the same name is ignored"),
        },
    }
