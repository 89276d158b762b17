"""What a webhook is asked and what it may answer, as values; `admission.py` carries them over HTTP.

    Review ──▶ handler ──▶ allowed() | denied("…") | patched(review, new) | Faults().answer(review)

A handler gives an answer; it never raises to refuse. What it raises is a failed call, and then the webhook's
failurePolicy decides.

Anybody who reaches the port can send a review. One whose objects are not what its request names, or not of
the shape that an API server lets in, is refused here, for all dialects; what is stored, each looks up itself
before it does something on a review's word. Nothing repeats more of it than a reader needs.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import orjson

from berth.control.jsonpatch import Operation, diff

Object = dict[str, Any]
API_VERSION = "admission.k8s.io/v1"
LONGEST_NAME = 253
LONGEST_ECHO = 200  # characters of a value that an answer repeats
MOST_PARTS = 600_000  # commas, or brackets that open, in a body: more is no object's, and is long to read


class BadReview(ValueError):
    """The body is no AdmissionReview v1 request; the text says why."""


def cut(text: str) -> str:
    """As much of a user's text as an answer repeats."""
    return text if len(text) <= LONGEST_ECHO else f"{text[:LONGEST_ECHO]}..."


class GroupKind(NamedTuple):
    group: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


@dataclass(frozen=True, slots=True)
class User:
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)  # what the authenticator told besides


@dataclass(frozen=True, slots=True)
class Review:
    """One question of the API server. `object` is empty for DELETE, `old_object` for CREATE."""

    uid: str
    operation: str
    kind: GroupKind
    resource: str
    namespace: str
    name: str
    user: User
    object: Object = field(repr=False)
    old_object: Object = field(repr=False)
    dry_run: bool = False
    subresource: str = ""
    options: Object = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Cause:
    """One broken rule: where, and what is wrong there."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


@dataclass(frozen=True, slots=True)
class Answer:
    allowed: bool
    code: int = 200
    reason: str = ""
    message: str = ""
    causes: tuple[Cause, ...] = ()
    patch: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def result(self) -> str:
        """The word for metrics and logs."""
        if not self.allowed:
            return "denied"
        return "patched" if self.patch else "allowed"

    def warning(self, *texts: str) -> Answer:
        """The same answer with warnings that `kubectl` shows."""
        return replace(self, warnings=(*self.warnings, *texts))


def allowed(*warnings: str) -> Answer:
    return Answer(True, warnings=warnings)


def denied(
    message: str, *, code: int = 403, reason: str = "Forbidden", causes: tuple[Cause, ...] = ()
) -> Answer:
    return Answer(False, code, reason, message, causes)


def patched(review: Review, new: Object) -> Answer:
    """Allowed, as `new`; plainly allowed if that is what came."""
    return Answer(True, patch=tuple(diff(review.object, new)))


class Fault(NamedTuple):
    path: str
    value: Any
    text: str

    @property
    def body(self) -> str:
        value = cut(self.value) if isinstance(self.value, str) else self.value
        shown = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
        shown = shown if isinstance(value, str) else cut(shown)
        return f"Invalid value: {shown}: {cut(self.text)}"

    def __str__(self) -> str:
        return f"{cut(self.path)}: {self.body}"


class Faults:
    """Every broken rule of one object, told together as the API server tells its own: 422, reason Invalid."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, path: str, value: Any, text: str) -> None:
        self._faults.append(Fault(path, value, text))

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._faults)

    def __len__(self) -> int:
        return len(self._faults)

    def answer(self, review: Review) -> Answer:
        """Allowed if there are none."""
        if not self._faults:
            return allowed()
        told = [str(fault) for fault in self._faults]
        listed = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
        message = f'{review.kind} "{review.name}" is invalid: {listed}'
        causes = tuple(Cause(cut(fault.path), fault.body) for fault in self._faults)
        return denied(message, code=422, reason="Invalid", causes=causes)


def parse_review(body: bytes) -> Review:
    """The question in a body, or BadReview."""
    if max(body.count(b","), body.count(b"{") + body.count(b"[")) > MOST_PARTS:
        raise BadReview("the body has more parts than any object")
    try:
        envelope = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadReview("the body is not JSON") from error
    if not isinstance(envelope, dict) or envelope.get("kind") != "AdmissionReview":
        raise BadReview("the body is not an AdmissionReview")
    if envelope.get("apiVersion") != API_VERSION:
        raise BadReview(f"the AdmissionReview must be {API_VERSION}")
    return _review(envelope.get("request"))


def _review(request: Any) -> Review:
    try:
        review = Review(
            uid=_name(request["uid"]),
            operation=_name(request["operation"]),
            kind=GroupKind(_short(request["kind"].get("group")), _name(request["kind"]["kind"])),
            resource=_name(request["resource"]["resource"]),
            namespace=_word(request.get("namespace")),
            name=_word(request.get("name")) or _own_name(request),
            user=_user(_mapping(request.get("userInfo"))),
            object=_object(request.get("object")),
            old_object=_object(request.get("oldObject")),
            dry_run=request.get("dryRun") is True,
            subresource=_short(request.get("subResource")),
            options=_object(request.get("options")),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise BadReview("the AdmissionReview has no complete request") from error
    for name, found in (("object", review.object), ("oldObject", review.old_object)):
        _refuse_another(review, name, found.get("metadata") or {})
    return review


def _refuse_another(review: Review, name: str, about: Mapping[str, Any]) -> None:
    """An API server fills both in from the URL. An object may leave out its namespace (a Namespace has none,
    and its request says one), and has no name yet with generateName.
    """
    for field_, asked in (("namespace", review.namespace), ("name", review.name)):
        if about.get(field_) not in (None, "", asked):
            raise BadReview(f"the {field_} of the {name} is not that of the request")


def misshapen(review: Review) -> str:
    """Why no object of any kind can be like this; '' if one can. An API server sends what a user wrote to the
    mutating webhooks before it looks itself, so this is an answer, not a BadReview."""
    for what, text in (("name", review.name), ("namespace", review.namespace)):
        if len(text) > LONGEST_NAME:
            return f"the {what} is longer than {LONGEST_NAME} characters"
    for obj in (review.object, review.old_object):
        for field_ in ("spec", "status"):
            if not isinstance(obj.get(field_), dict | None):
                return f"{field_} is not an object"
        about = obj.get("metadata") or {}
        for field_ in ("generateName", "uid", "resourceVersion"):
            if len(about.get(field_) or "") > LONGEST_NAME:
                return f"metadata.{field_} is longer than {LONGEST_NAME} characters"
    return ""


def _word(value: Any) -> str:
    if not isinstance(value, str | None):
        raise TypeError("not a text")
    return value or ""


def _short(value: Any) -> str:
    """What is the API server's own, not a user's."""
    text = _word(value)
    if len(text) > LONGEST_NAME:
        raise TypeError("not a name")
    return text


def _name(value: Any) -> str:
    """The same, and it has to be there."""
    if not (text := _short(value)):
        raise TypeError("not a name")
    return text


def _mapping(value: Any) -> Object:
    if not isinstance(value, dict | None):
        raise TypeError("not an object")
    return value or {}


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | None) or not all(isinstance(text, str) for text in value or ()):
        raise TypeError("not a list of texts")
    return tuple(value or ())


def _object(value: Any) -> Object:
    """Its metadata is what everybody reads: of the shape that an API server lets in."""
    found = _mapping(value)
    about = _mapping(found.get("metadata"))
    for key in ("name", "generateName", "namespace", "uid", "resourceVersion", "deletionTimestamp"):
        _word(about.get(key))
    for key in ("kind", "apiVersion"):
        _word(found.get(key))
    for key in ("annotations", "labels"):
        if not all(isinstance(text, str) for text in _mapping(about.get(key)).values()):
            raise TypeError("not a text")
    _texts(about.get("finalizers"))
    references = about.get("ownerReferences")
    if not isinstance(references, list | None) or not all(isinstance(one, dict) for one in references or ()):
        raise TypeError("not a list of objects")
    return found


def _own_name(request: Mapping[str, Any]) -> str:
    """With generateName the server names the object after the mutating webhooks: then there is none yet."""
    meta = _mapping(_mapping(request.get("object")).get("metadata"))
    return _word(meta.get("name"))


def _user(info: Mapping[str, Any]) -> User:
    extra = {key: _texts(texts) for key, texts in _mapping(info.get("extra")).items()}
    return User(_word(info.get("username")), _word(info.get("uid")), _texts(info.get("groups")), extra)


def render(review: Review, answer: Answer) -> bytes:
    """The AdmissionReview that answers it."""
    response: Object = {"uid": review.uid, "allowed": answer.allowed}
    if answer.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(answer.patch)).decode()
    if not answer.allowed:
        response["status"] = _status(review, answer)
    if answer.warnings:
        response["warnings"] = list(answer.warnings)
    return orjson.dumps({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def _status(review: Review, answer: Answer) -> Object:
    status: Object = {
        "status": "Failure",
        "code": answer.code,
        "reason": answer.reason,
        "message": answer.message,
    }
    if answer.causes:
        causes = [{"reason": c.reason, "message": c.message, "field": c.field} for c in answer.causes]
        kind = review.kind
        status["details"] = {"name": review.name, "group": kind.group, "kind": kind.kind, "causes": causes}
    return status
