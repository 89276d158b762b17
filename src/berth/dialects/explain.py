"""`berth explain KIND/NAME`: what a claim has, or why it waits, in plain words."""

from __future__ import annotations

from dataclasses import dataclass

from berth.dialects import DIALECTS
from berth.dialects.dialect import Dialect
from berth.dialects.view import Object, PoolRow, Question
from berth.errors import NotFound, UserError
from berth.kube.client import Client
from berth.kube.resource import Resource
from berth.settings import Settings

EVENTS = Resource("", "v1", "Event", "events")
# By the word of the command: whose it may be, in the order of the tuple.
KINDS: dict[str, list[Dialect]] = {}
for _dialect in DIALECTS:
    for _word in _dialect.view.kinds:
        KINDS.setdefault(_word, []).append(_dialect)
SHORT = {short: word for dialect in DIALECTS for short, word in dialect.view.short.items()}
DEFAULTS = Settings(dialects=tuple(dialect.name for dialect in DIALECTS))


@dataclass(frozen=True, slots=True)
class Explanation:
    what: str
    answer: str
    pools: list[PoolRow]
    events: list[str]


def parse_target(what: str) -> tuple[str, str]:
    """The word of a kind, as in KINDS, and a name."""
    kind, _, name = what.partition("/")
    word = SHORT.get(kind.lower(), kind.lower().removesuffix("s"))
    if word not in KINDS or not name:
        raise UserError(f"write KIND/NAME with a kind out of {', '.join(KINDS)}, not {what!r}.")
    return word, name


async def explain(client: Client, what: str, namespace: str, settings: Settings = DEFAULTS) -> Explanation:
    word, name = parse_target(what)
    versions = KINDS[word][0].view.kinds[word]
    obj = await _found(client, versions, name, namespace)
    dialect = _serving(obj, KINDS[word], settings)
    events = await _events(client, obj)
    asked = Question(obj, settings, events, _not_served(obj, settings))
    considered = dialect.name in settings.dialects and not asked.unserved
    pools = [
        row
        for row in (await dialect.view.pools(client, settings) if considered else ())
        if dialect.view.considers(row, obj, settings)
    ]
    missing = dialect.view.named_pool(obj)
    if missing is not None and missing.name not in {found.name for found in pools}:
        pools.append(missing)
    what = f"{versions[0].kind} {namespace}/{name}"
    return Explanation(what, dialect.view.answer(asked), pools, list(map(_line, events)))


async def _found(client: Client, versions: tuple[Resource, ...], name: str, namespace: str) -> Object:
    for resource in versions:
        try:
            return await client.get(resource, name, namespace)
        except NotFound:
            continue  # or the server has only another version of it
    raise UserError(f"there is no {versions[0].kind} {namespace}/{name}.")


def _serving(obj: Object, candidates: list[Dialect], settings: Settings) -> Dialect:
    """Whose an object is: where its class does not tell, what the dialects wrote on it does."""
    by_class = [one for one in candidates if _class_of(obj) in one.service_classes(settings)]
    if len(by_class) == 1:
        return by_class[0]
    return next((one for one in candidates if one.view.is_ours(obj)), candidates[0])


def _class_of(obj: Object) -> str:
    return (obj.get("spec") or {}).get("loadBalancerClass") or ""


def _not_served(obj: Object, settings: Settings) -> str:
    """Why no dialect looks at a Service; empty: one may."""
    if obj.get("kind") != "Service":
        return ""
    of_type = (obj.get("spec") or {}).get("type")
    if of_type != "LoadBalancer":
        return f"gets no address: it is of type {of_type}, and only LoadBalancer is served"
    serving = KINDS["service"]
    if not any(_class_of(obj) in dialect.service_classes(settings) for dialect in serving):
        what = _class_of(obj) or "a Service without a loadBalancerClass"
        flags = " or ".join(dialect.classes_flag for dialect in serving)
        return f"has no answer yet: {what} is served where {flags} names it"
    return ""


async def _events(client: Client, obj: Object) -> list[Object]:
    """About it, the newest last."""
    about = obj["metadata"]
    selector = f"involvedObject.uid={about['uid']}"
    listing = await client.list(EVENTS, about["namespace"], field_selector=selector)
    return sorted(listing.items, key=lambda event: event.get("lastTimestamp") or "")


def _line(event: Object) -> str:
    return f"{event.get('lastTimestamp')} {event.get('type')} {event.get('reason')}: {event.get('message')}"
