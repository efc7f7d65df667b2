"""What a message asks of the domain registry, in all forms of specification and field, and answers.

Pure. A body becomes one Request value, which the embedded and the remote registry both understand.

read    user://…  user-guid://…  hyperty://…  <any URL>  <name>
        /<scheme>/user|idp-identifier|email|guid|url|name|reporter/<key>   /<scheme>/<URL or id>
        /<scheme> with criteria.reporter; criteria: resources, dataSchemes, scheme, filter, page
        (filter: an object of further criteria, or what the key is, such as "idp-identifier")
create  value with url                 (and user, for a hyperty)
update  resource; no value: a keep-alive; value {…}; value with attribute
delete  value with url (and user), or with the name of a data object

A value may be an object or its JSON text. For <scheme> may stand `dataObject`, the type of all of
them: an id is then looked for in each of OBJECT_SCHEMES. A hyperty may be registered with the keys
of the first phase, `hypertyURL` and `hypertyDescriptorURL`, and without what came later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from msgnode.core import addresses
from msgnode.core.errors import BadMessage
from msgnode.core.messages import value_of
from registry.api import UNAVAILABLE, Kind, Search

PAGE = 50
OBJECT_SCHEMES = ("comm", "connection", "context", "ctxt", "resource", "fs")
"""The schemes in which an object is looked for that is named by its id alone."""
_OF_FIRST_PHASE = {"hypertyURL": "url", "hypertyDescriptorURL": "descriptor"}
_HYPERTY_WORDS = frozenset({"hyperty", "hyperty-runtime", "user", "user-guid"})
_KEYS = {
    "user": "user",
    "idp-identifier": "email",
    "email": "email",
    "guid": "guid",
    "url": "url",
    "name": "name",
    "reporter": "reporter",
}
_P2P = ("p2pRequester", "p2pHandler")
_COMMON = ("expires", "resources", "dataSchemes", "status", "runtime", *_P2P)
_FACTS = {
    Kind.HYPERTY: (*_COMMON, "descriptor", "guid"),
    Kind.OBJECT: (*_COMMON, "name", "schema", "reporter"),
}


@dataclass(frozen=True, slots=True)
class Find:
    """Search.

    is_single  by URL, answered by one record instead of a map
    name       look for a data object of that name where no URL matches
    page       from 1, 0 for all
    also       further URLs that the one record may have
    """

    search: Search
    is_single: bool = False
    name: str = ""
    page: int = 0
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Register:
    """Enter or replace; `body` has the known keys only."""

    kind: Kind
    url: str
    body: Mapping[str, Any]
    user: str = ""


@dataclass(frozen=True, slots=True)
class Refresh:
    """A sign of life."""

    kind: Kind
    url: str


@dataclass(frozen=True, slots=True)
class Change:
    """A partial update."""

    kind: Kind
    url: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Remove:
    """Take out of service: a hyperty of `user`, or a data object by its URL or else its name."""

    kind: Kind
    url: str = ""
    user: str = ""
    name: str = ""


Request = Find | Register | Refresh | Change | Remove


def request_of(type_: str, body: Mapping[str, Any], domain: str, runtime: str = "") -> Request:
    """The request of a message.

    Args:
        type_: the type of the message.
        body: its body.
        domain: the node's domain.
        runtime: the sender's runtime URL, for a registration of the first phase, which has none.

    Raises:
        BadMessage: it asks nothing intelligible.
    """
    match type_:
        case "read":
            return _find(body, domain)
        case "create":
            return _register(body, runtime)
        case "update":
            return _change(body, domain)
        case "delete":
            return _remove(body, domain)
    raise BadMessage("The domain registry takes create, read, update and delete.")


def _find(body: Mapping[str, Any], domain: str) -> Find:
    resource = _text(body, "resource")
    criteria = _mapping(body.get("criteria"), "criteria")
    filter_ = criteria.get("filter")
    if isinstance(filter_, str):
        wanted = {key: value for key, value in criteria.items() if key != "filter"}
        found = _filtered(resource, filter_, domain)
    else:
        wanted = {**criteria, **_mapping(filter_, "criteria.filter")}
        found = _keyed(resource, wanted, domain)
    if not wanted and body.get("page") is None:
        return found
    scheme = _optional(wanted, "scheme", "criteria.scheme")
    search = found.search
    if scheme and not found.is_single:
        kind = _kind(scheme)
        search = replace(search, kind=kind, scheme="" if kind is Kind.HYPERTY else scheme)
    search = replace(
        search,
        resources=_words(wanted.get("resources"), "resources"),
        data_schemes=_words(wanted.get("dataSchemes"), "dataSchemes"),
    )
    return replace(found, search=search, page=_page(wanted.get("page", body.get("page"))))


def _filtered(resource: str, filter_: str, domain: str) -> Find:
    """The search of `resource` by the key that the filter names, whatever its path says."""
    if filter_ not in _KEYS:
        raise BadMessage(f"The text in `criteria.filter` must be one of {', '.join(_KEYS)}.")
    word, _, key = resource.removeprefix("/").partition("/")
    if not resource.startswith("/") or "://" in word:
        word, key = Kind.HYPERTY, resource
    by, _, rest = key.partition("/")
    return _by(_kind(word), _KEYS[filter_], rest if by in _KEYS and rest else key, word)


def _keyed(resource: str, criteria: Mapping[str, Any], domain: str) -> Find:
    """The search by its key, before the criteria."""
    if resource.startswith("/"):
        word, _, rest = resource[1:].partition("/")
        kind = _kind(word)
        if not rest:
            return _by_criteria(kind, criteria)
        by, _, key = rest.partition("/")
        if by in _KEYS and key and "://" not in by:
            return _by(kind, _KEYS[by], key, word)
        return _by_id(kind, word, rest, domain)
    scheme = addresses.parse(resource).scheme
    if scheme == "user":
        return Find(Search(Kind.HYPERTY, user=resource))
    if scheme == "user-guid":
        return Find(Search(Kind.HYPERTY, guid=resource))
    if scheme in _HYPERTY_WORDS:
        return _by_url(Kind.HYPERTY, resource)
    if scheme and "://" in resource:
        return Find(Search(Kind.OBJECT, url=resource), is_single=True, name=resource)
    return Find(Search(Kind.OBJECT, name=resource))


def _by(kind: Kind, key: str, value: str, word: str) -> Find:
    if key == "url":
        return _by_url(kind, value)
    if key in ("name", "reporter"):
        return Find(Search.by(Kind.OBJECT, key, value))
    if key == "user" and "://" not in value:
        key = "email"
    scheme = word if kind is Kind.OBJECT and word.lower() != Kind.OBJECT else ""
    return Find(Search.by(kind, key, value, scheme=scheme))


def _by_url(kind: Kind, url: str) -> Find:
    return Find(Search(kind, url=url), is_single=True)


def _by_id(kind: Kind, word: str, rest: str, domain: str) -> Find:
    """One record by its URL, or by an id in this domain: of an object, in any scheme."""
    urls = possible_urls(_url(word, rest, domain))
    return Find(Search(kind, url=urls[0]), is_single=True, also=urls[1:])


def possible_urls(url: str) -> tuple[str, ...]:
    """The URLs that a URL may stand for: several for an object of which only the id is known.

    >>> possible_urls("comm://d/1"), possible_urls("dataObject://d/1")[:2]
    (('comm://d/1',), ('comm://d/1', 'connection://d/1'))
    """
    word, _, rest = url.partition("://")
    if word.lower() != Kind.OBJECT:
        return (url,)
    return tuple(f"{scheme}://{rest}" for scheme in OBJECT_SCHEMES)


def _by_criteria(kind: Kind, criteria: Mapping[str, Any]) -> Find:
    """`/comm` with the key among the criteria; a reporter's objects are found of any scheme."""
    for key in ("reporter", "name", "user", "email", "guid", "url"):
        if value := _optional(criteria, key, f"criteria.{key}"):
            return _by(kind, key, value, Kind.OBJECT)
    raise BadMessage("The criteria name no reporter, name, user, email, guid or url.")


def _register(body: Mapping[str, Any], runtime: str) -> Register:
    value = _value(body)
    if "hypertyURL" in value:
        later = {"resources": [], "dataSchemes": [], "status": "live", "runtime": runtime}
        value = {**later, **{_OF_FIRST_PHASE.get(key, key): each for key, each in value.items()}}
    url = _text(value, "url", "value.url")
    kind = _kind(addresses.parse(url).scheme)
    user = _text(value, "user", "value.user") if kind is Kind.HYPERTY else ""
    return Register(kind, url, _facts(kind, value), user)


def _change(body: Mapping[str, Any], domain: str) -> Refresh | Change:
    value = body.get("value")
    kind, url = _target(body, domain)
    attribute = _optional(body, "attribute")
    if attribute and value is not None:
        facts = _facts(kind, {attribute: value})
        if not facts:
            raise BadMessage(f"The attribute {attribute[:40]!r} is none of an entry.")
        return Change(kind, url, facts)
    facts = _facts(kind, _value(body))
    return Change(kind, url, facts) if facts else Refresh(kind, url)


def _remove(body: Mapping[str, Any], domain: str) -> Remove:
    value = _value(body)
    if not _optional(value, "url", "value.url") and not _optional(body, "resource"):
        if name := _optional(value, "name", "value.name"):
            return Remove(Kind.OBJECT, name=name)
        raise BadMessage("The body lacks `value.url`.")
    kind, url = _target(body, domain)
    return Remove(kind, url, _optional(value, "user", "value.user"))


def _target(body: Mapping[str, Any], domain: str) -> tuple[Kind, str]:
    """The entry a change is about: `resource` in any of its forms, or `value.url`."""
    resource = _optional(body, "resource")
    if not resource and not body.get("attribute"):
        resource = _optional(_value(body), "url", "value.url")
    if not resource:
        raise BadMessage("The body lacks `resource`.")
    if not resource.startswith("/"):
        return _kind(addresses.parse(resource).scheme), resource
    word, _, rest = resource[1:].partition("/")
    url = _url(word, rest.removeprefix("url/"), domain)
    return _kind(word), url


def _url(word: str, rest: str, domain: str) -> str:
    """The URL of `/<scheme>/<rest>`: the rest itself, or an id in this domain."""
    return rest if "://" in rest else f"{word}://{domain}/{rest}"


def _kind(word: str) -> Kind:
    return Kind.HYPERTY if word.lower() in _HYPERTY_WORDS else Kind.OBJECT


def _facts(kind: Kind, value: Mapping[str, Any]) -> dict[str, Any]:
    facts = {key: value[key] for key in _FACTS[kind] if value.get(key) is not None}
    expires = facts.get("expires")
    if isinstance(expires, str) and expires.isascii() and expires.isdigit() and len(expires) < 20:
        facts["expires"] = int(expires)
    return facts


def _value(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `value` of a body: an object, or its JSON text."""
    return _mapping(value_of(body), "value")


def _text(body: Mapping[str, Any], key: str, name: str = "") -> str:
    if not (value := _optional(body, key, name)):
        raise BadMessage(f"The body lacks `{name or key}`.")
    return value


def _optional(body: Mapping[str, Any], key: str, name: str = "") -> str:
    """A text of the body, empty if it has none."""
    value = body.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadMessage(f"The field `{name or key}` must be a text.")
    return value


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadMessage(f"The field `{name}` must be an object.")
    return value


def _words(value: object, name: str) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value or []
    if not isinstance(listed, list) or not all(isinstance(word, str) for word in listed):
        raise BadMessage(f"The criterion `{name}` must be a list of texts.")
    return tuple(listed)


def _page(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadMessage("The criterion `page` must be a number from 1.")
    return value


DONE = {"code": 200}
UNREACHABLE = "Error contacting the domain registry."


def found(
    request: Find, code: int, records: Mapping[str, Any], unavailable_code: int
) -> dict[str, Any]:
    """The answer to a search: `records` by URL, `code` 200, 404 or 408.

    Older runtimes expect 500 for unavailable, so a setting can replace 408. The record of an
    unavailable hyperty has no P2P handler, because nobody could answer an invitation.
    """
    if code == 404 or not records:
        return error(404, "Not Found")
    if request.page:
        first = (request.page - 1) * PAGE
        records = dict(list(records.items())[first : first + PAGE])
    records = {url: _invitable(record) for url, record in records.items()}
    value: Any = next(iter(records.values()), None) if request.is_single else records
    if code == 408:
        return {**error(unavailable_code, "Temporarily Unavailable"), "value": value}
    return {"code": code, "value": value}


def _invitable(record: Any) -> Any:
    if not isinstance(record, dict) or record.get("status") not in UNAVAILABLE:
        return record
    return {key: value for key, value in record.items() if key != "p2pHandler"}


def error(code: int, description: str) -> dict[str, Any]:
    """The body of an error, with its text under both keys that clients read."""
    return {"code": code, "desc": description, "description": description}
