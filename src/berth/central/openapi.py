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
            "/inventory": {"post": _post_inventory()},
            "/heartbeat": {"post": _post_heartbeat()},
            "/batch": {"post": _post_batch()},
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
                    "409": "The secret cannot be replaced: others use the address, or the cluster is frozen",
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
                    "409": "Two operators speak for the cluster: nothing of it is released now",
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
                    "409": "Two operators speak for the cluster: nothing of it is released now",
                    "503": "The ledger cannot answer now",
                }
            ),
        },
    }


def _post_batch() -> Json:
    return {
        "operationId": "batch",
        "summary": "Several calls at once, each answered as it would have been alone",
        "requestBody": _body("Batch"),
        "responses": {
            "200": _answer("One answer for each call, in order", "BatchAnswer"),
            **_refusals(
                {
                    "400": "The batch itself cannot be parsed",
                    "401": "With identities switched on: no token, or a wrong one",
                    "413": "More than 256 calls",
                    "503": "The ledger cannot answer now",
                }
            ),
        },
    }


def _post_inventory() -> Json:
    return {
        "operationId": "reportInventory",
        "summary": "An operator's heartbeat: all addresses its cluster lists, compared with the ledger",
        "requestBody": _body("Inventory"),
        "responses": {
            "200": _answer("What differs", "InventoryAnswer"),
            **_refusals(
                {
                    "400": "A fault in the request; the message names it",
                    "401": "With identities switched on: no token, or a wrong one",
                    "403": "The identity is bound to other clusters or zones",
                    "503": "The ledger cannot answer now",
                }
            ),
        },
    }


def _post_heartbeat() -> Json:
    return {
        "operationId": "heartbeat",
        "summary": "Between two inventories: the operator is still there",
        "requestBody": _body("Heartbeat"),
        "responses": {
            "200": _answer("Whether it counted", "HeartbeatAnswer"),
            **_refusals(
                {
                    "400": "A fault in the request; the message names it",
                    "401": "With identities switched on: no token, or a wrong one",
                    "403": "The identity is bound to other clusters",
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


def _name(description: str, least: int = 1) -> Json:
    """Free text without control characters."""
    return _text(description, minLength=least, maxLength=512, pattern=r"^[^\x00-\x1f]*$")


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
        "Batch": _batch(),
        "BatchAnswer": _batch_answer(),
        "Inventory": _inventory(),
        "InventoryAnswer": _inventory_answer(),
        "Heartbeat": _heartbeat(),
        "HeartbeatAnswer": {
            "type": "object",
            "required": ["message", "cluster_id", "counted", "frozen"],
            "properties": {
                **message,
                "cluster_id": {"type": "string"},
                "counted": {"type": "boolean", "description": "False: send an inventory first"},
                "frozen": {"type": "boolean", "description": "Two operators speak for this cluster"},
            },
        },
        "Difference": {
            "type": "object",
            "required": ["address", "service_name", "namespace_id", "reason"],
            "properties": {
                "address": _text("Host CIDR"),
                "service_name": _text("Name of the Service"),
                "namespace_id": _text("UID of its namespace"),
                "reason": _text("One word for programs; empty: none"),
            },
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
            "uid": _name("UID of the Service; a release by an earlier one of the same name is ignored", 0),
        },
    }


def _batch() -> Json:
    call = {
        "type": "object",
        "required": ["method", "body"],
        "properties": {
            "method": {
                "type": "string",
                "enum": ["POST", "DELETE"],
                "description": "POST: of an address; DELETE: of a service",
            },
            "body": _ref("Request"),
        },
    }
    calls = {"type": "array", "maxItems": 256, "items": call}
    return {"type": "object", "required": ["calls"], "properties": {"calls": calls}}


def _batch_answer() -> Json:
    answer = {
        "type": "object",
        "required": ["status", "body"],
        "properties": {"status": {"type": "integer"}, "body": {"type": "object"}},
    }
    return {
        "type": "object",
        "required": ["answers"],
        "properties": {"answers": {"type": "array", "items": answer}},
    }


def _heartbeat() -> Json:
    return {
        "type": "object",
        "required": ["cluster_id", "epoch", "sequence", "alive_ms"],
        "properties": {
            "cluster_id": _name("UID of the cluster's namespace kube-system"),
            "epoch": _name("As in this process's inventories"),
            "sequence": {"type": "integer", "minimum": 1, "description": "Counted with its inventories"},
            "alive_ms": _alive_ms("When the next one will come", 1),
        },
    }


def _alive_ms(meaning: str, least: int = 0) -> Json:
    return {"type": "integer", "minimum": least, "maximum": 100_000, "description": meaning}


def _inventory() -> Json:
    return {
        "type": "object",
        "required": ["cluster_id", "epoch", "sequence", "addresses"],
        "properties": {
            "cluster_id": _name("UID of the cluster's namespace kube-system"),
            "epoch": _name("Made anew by every operator process"),
            "sequence": {"type": "integer", "minimum": 1, "description": "Number of this process's report"},
            "heartbeat_seconds": {
                "type": "integer",
                "minimum": 1,
                "maximum": 300,
                "default": 60,
                "description": "When the next report comes; without heartbeats: gone after 1.5 times that",
            },
            "leaving": {
                "type": "boolean",
                "default": False,
                "description": "The last report of this process; a successor need not wait",
            },
            "alive_ms": _alive_ms("How often heartbeats come between two reports; 0: none do"),
            "addresses": {
                "type": "array",
                "maxItems": 20000,
                "items": _ref("Request"),
                "description": "Each as for POST /address, with its address",
            },
            "releasing": {
                "type": "array",
                "maxItems": 20000,
                "items": _ref("Request"),
                "description": "No longer listed, not released yet: not compared, but its secret is a proof",
            },
        },
    }


def _inventory_answer() -> Json:
    def differences(meaning: str) -> Json:
        return {"type": "array", "items": _ref("Difference"), "description": meaning}

    return {
        "type": "object",
        "required": ["message", "cluster_id", "counted", "frozen", "missing", "unknown", "conflict"],
        "properties": {
            "message": {"type": "string"},
            "cluster_id": {"type": "string"},
            "addresses": {"type": "integer", "description": "How many were listed"},
            "counted": {
                "type": "boolean",
                "description": "Whether it counts as a heartbeat: one secret was right, or identities are on",
            },
            "frozen": {"type": "boolean", "description": "Two operators speak for this cluster"},
            "adopted": differences("Was missing in two reports in a row, is registered now"),
            "missing": differences("Listed, not in the ledger"),
            "unknown": differences("In the ledger, not listed"),
            "conflict": differences("Listed, but another's in the ledger, or released by others"),
        },
    }
