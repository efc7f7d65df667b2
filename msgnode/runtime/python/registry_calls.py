"""What a message to a domain registry is as a request over REST, and what may be answered. Pure.

docs/reference/registry.md, sections A2 and A5. The paths are those of the field's registry, which a
node serves below `/domain-registry`:

    read    hyperty://… data object's URL, name, user://… user-guid://…
            /hyperty/user|idp-identifier|email|guid/<key>   /hyperty/<URL>   /comm with
            criteria.reporter or criteria.name; criteria.resources, criteria.dataSchemes
    create  value with url, and user for a hyperty          update  a sign of life, or value
    delete  value.url, with value.user for a hyperty

Rules
- What has no such path is refused 501: it can be asked by messages.
- An answer counts only if it is about what was asked for: each record names the URL it stands
  under, and the user, GUID, name or reporter that was looked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from msgnode.core import addresses

MAX_WORDS = 500
_HYPERTIES = frozenset({"hyperty", "hyperty-runtime", "user", "user-guid"})
_KEYS = {"user": "user", "idp-identifier": "email", "email": "email", "guid": "guid"}
_NAMES = {"user": "userID", "guid": "guid", "name": "name", "reporter": "reporter"}


class RegistryRefusal(Exception):
    """The registry cannot be asked for this, or answers wrongly; `code` as in an answer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Call:
    """A request: `path` below the base URL; `url` or `by` say what the answer must be about."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    url: str = ""
    by: tuple[str, str] | None = None


def call_of(type_: str, body: Mapping[str, Any]) -> Call:
    """The request of a message. Raises RegistryRefusal."""
    match type_:
        case "read":
            return _read(body)
        case "create":
            return _create(body)
        case "update":
            return _update(body)
        case "delete":
            return _delete(body)
    raise RegistryRefusal(400, "A domain registry takes create, read, update and delete.")


def body_of_answer(call: Call, status: int, found: Any) -> dict[str, Any]:
    """The body of the answer to the message. Raises RegistryRefusal.

    Args:
        call: what was asked.
        status: of HTTP.
        found: the JSON of the answer, None if it is none.
    """
    if status not in (200, 408):
        raise RegistryRefusal(_code(status), _words(status, found))
    if not isinstance(found, dict):
        raise RegistryRefusal(502, "The registry answers with no JSON object.")
    if call.method != "GET":
        if status == 408:
            raise RegistryRefusal(408, _words(status, found))
        return {"code": 200}
    if call.url:
        _check(call, call.url, found)
    else:
        for url, record in found.items():
            _check(call, url, record)
        if not found:
            raise RegistryRefusal(404, "Not Found")
    if status == 408:
        words = "Temporarily Unavailable"
        return {"code": 408, "desc": words, "description": words, "value": found}
    return {"code": 200, "value": found}


def _check(call: Call, url: str, record: Any) -> None:
    if not isinstance(record, dict) or record.get("hypertyID", record.get("url")) != url:
        raise RegistryRefusal(502, f"The registry answers with another entry than {url[:200]}.")
    if call.by is None:
        return
    key, wanted = call.by
    if key == "email":
        is_it = str(record.get("userID")).rpartition("/")[2] == wanted
    elif key == "guid":  # not all registries tell it
        is_it = record.get("guid", wanted) == wanted
    else:
        is_it = record.get(_NAMES[key]) == wanted
    if not is_it:
        text = f"The registry answers with an entry of another {key} than {wanted[:200]}."
        raise RegistryRefusal(502, text)


def _read(body: Mapping[str, Any]) -> Call:
    resource = _required_text(body, "resource")
    criteria = _mapping(body, "criteria")
    query = "&".join(
        f"{name}={','.join(_quoted(each) for each in _list(criteria, name))}"
        for name in ("resources", "dataSchemes")
        if _list(criteria, name)
    )
    for name in criteria.keys() - {"resources", "dataSchemes", "reporter", "name"}:
        raise RegistryRefusal(501, f"Over REST a registry knows no criterion {name[:100]}.")
    kind, key, value = _looked_for(resource, criteria)
    if key == "url":
        if query:
            raise RegistryRefusal(501, "Over REST a registry takes no criteria beside a URL.")
        return Call("GET", _entry(kind, value, "hyperty/dataobject/url"), url=value)
    start = "hyperty" if kind == "hyperty" else "hyperty/dataobject"
    path = f"{start}/{key}/{_quoted(value)}"
    if query:
        if key == "guid":
            raise RegistryRefusal(501, "Over REST a registry takes no criteria beside a GUID.")
        path += f"/{'hyperty' if kind == 'hyperty' else 'do'}?{query}"
    return Call("GET", path, by=(key, value))


def _looked_for(resource: str, criteria: Mapping[str, Any]) -> tuple[str, str, str]:
    """Of which kind, by which key, and its value."""
    if not resource.startswith("/"):
        scheme = addresses.parse(resource).scheme if "://" in resource else ""
        if scheme == "user":
            return "hyperty", "user", resource
        if scheme == "user-guid":
            return "hyperty", "guid", resource
        if scheme:
            return _kind(scheme), "url", resource
        return "object", "name", resource
    word, _, rest = resource[1:].partition("/")
    kind = _kind(word)
    if not rest:
        for key in ("reporter", "name"):
            if key in criteria and kind == "object":
                return kind, key, _required_text(criteria, key)
    by, _, value = rest.partition("/")
    if kind == "hyperty" and by in _KEYS and value:
        key = _KEYS[by]
        return kind, "email" if key == "user" and "://" not in value else key, value
    if "://" in rest:
        return kind, "url", rest
    raise RegistryRefusal(501, f"Over REST a registry cannot be asked for {resource[:200]}.")


def _create(body: Mapping[str, Any]) -> Call:
    value = dict(_mapping(body, "value"))
    url = _required_text(value, "url")
    if _kind(addresses.parse(url).scheme) == "object":
        return Call("PUT", f"hyperty/dataobject/{_quoted(url)}", value)
    user = _required_text(value, "user")
    facts = {name: each for name, each in value.items() if name not in ("url", "user")}
    return Call("PUT", f"hyperty/user/{_quoted(user)}/{_quoted(url)}", facts)


def _update(body: Mapping[str, Any]) -> Call:
    url = _url(body)
    attribute, value = body.get("attribute"), body.get("value")
    if isinstance(attribute, str) and attribute and value is not None:
        facts: Mapping[str, Any] = {attribute: value}
    else:
        facts = _mapping(body, "value")
    kind = _kind(addresses.parse(url).scheme)
    return Call("PUT", _entry(kind, url, "dataobject/url"), dict(facts))


def _delete(body: Mapping[str, Any]) -> Call:
    url, user = _url(body), _mapping(body, "value").get("user")
    kind = _kind(addresses.parse(url).scheme)
    if kind == "hyperty" and isinstance(user, str) and user:
        return Call("DELETE", f"hyperty/user/{_quoted(user)}/{_quoted(url)}")
    return Call("PUT", _entry(kind, url, "dataobject/url"), {"status": "disconnected"})


def _url(body: Mapping[str, Any]) -> str:
    value = body.get("value")
    url = body.get("resource") or (value.get("url") if isinstance(value, dict) else None)
    if not isinstance(url, str) or not addresses.parse(url).domain:
        raise RegistryRefusal(400, "The body names no entry: `resource` must be its URL.")
    return url


def _entry(kind: str, url: str, of_objects: str) -> str:
    return f"{'hyperty/url' if kind == 'hyperty' else of_objects}/{_quoted(url)}"


def _quoted(text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise RegistryRefusal(400, "The body has a text that is no Unicode.") from None


def _kind(word: str) -> str:
    return "hyperty" if word.lower() in _HYPERTIES else "object"


def _required_text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if value is None or value == "":
        raise RegistryRefusal(400, f"The body lacks `{name}`.")
    if not isinstance(value, str):
        raise RegistryRefusal(400, f"The field `{name}` must be a text.")
    return value


def _mapping(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise RegistryRefusal(400, f"`{name}` must be an object.")
    return value or {}


def _list(criteria: Mapping[str, Any], name: str) -> list[str]:
    value = criteria.get(name) or []
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise RegistryRefusal(400, f"The criterion `{name}` must be a list of texts.")
    return listed


def _code(status: int) -> int:
    if status in (400, 401, 403, 404, 409, 412, 413, 429):
        return status
    return 504 if status >= 500 else 502


def _words(status: int, found: Any) -> str:
    said = found.get("message") if isinstance(found, dict) else None
    words = said if isinstance(said, str) and said else f"The registry answers {status}."
    return words[:MAX_WORDS]
