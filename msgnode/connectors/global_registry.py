"""The connector to the global registry, global://registry, embedded or remote.

docs/reference/registry.md, section B4.
All forms of the field are one request: READ (guid) or CREATE (guid, jwt), with the guid in `guid`
or `resource`, the record in `jwt` or `value`; update is create. Answers have the keys of both
generations, capitalised and not. An error has no Value, because clients would take it for a record.
With `previous`, the digest of the record that the writer has seen ("" for none), the embedded
registry refuses to overwrite another's change; clients of the field do not use it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import quote

from msgnode.bus.ports import Body, Component, Listener
from msgnode.core.errors import BadMessage, Conflict, NodeError
from msgnode.core.messages import Message
from msgnode.net.back_end import Answer, BackEnd
from registry import api

from .embedded_registry import EmbeddedRegistry

MAX_GUID = 300
"""Characters, with the scheme."""


class GlobalRegistry(Protocol):
    """The registry behind the connector. Both raise NodeError."""

    def get(self, guid: str) -> Awaitable[str]:
        """The signed record of a GUID, as a JWT."""
        ...

    def put(self, guid: str, jwt: str, previous: str | None) -> Awaitable[object]:
        """Store a record; `previous` is the digest that the stored one must have, if any."""
        ...


class EmbeddedGlobalRegistry:
    """The records of this node, in the threads of the embedded registry."""

    def __init__(self, registry: EmbeddedRegistry) -> None:
        self._registry = registry

    def get(self, guid: str) -> Awaitable[str]:
        """Read it in a thread."""
        return self._registry.in_thread(lambda: api.global_get(guid))

    def put(self, guid: str, jwt: str, previous: str | None) -> Awaitable[object]:
        """Store it in a thread, if the stored one still has the digest `previous`."""

        def check(stored: str | None) -> None:
            if (api.global_digest(stored) if stored else "") != previous:
                raise Conflict("The record has been changed in the meantime.")

        condition = None if previous is None else check
        return self._registry.in_thread(lambda: api.global_put(guid, jwt, condition))


class RemoteGlobalRegistry:
    """Records of a global registry over HTTP."""

    def __init__(self, back_end: BackEnd) -> None:
        self._back_end = back_end

    async def get(self, guid: str) -> str:
        """Ask the remote registry; raises Refused for any other answer than 200."""
        answer = await self._back_end.send("GET", _path(guid))
        value = _fields(answer).get("Value")
        if answer.status != 200 or not isinstance(value, str):
            raise Refused(answer)
        return value

    async def put(self, guid: str, jwt: str, previous: str | None) -> None:
        """Send it there; the protocol has no condition, so `previous` does not count."""
        answer = await self._back_end.send("PUT", _path(guid), jwt.encode())
        if answer.status != 200:
            raise Refused(answer)


class Refused(NodeError):
    """The remote registry's own refusal, passed on with its code."""

    def __init__(self, answer: Answer) -> None:
        said = _fields(answer).get("Explanation") or _fields(answer).get("Description")
        super().__init__(said if isinstance(said, str) else "")
        self.code = answer.status if answer.status >= 400 else 502  # type: ignore[misc]


class GlobalRegistryConnector(Component):
    """Relays to a GlobalRegistry."""

    name = "global-registry"
    kind = "connector"

    def __init__(self, registry: GlobalRegistry) -> None:
        super().__init__(("global://registry",))
        self._registry = registry

    def answer(self, message: Message, caller: Listener) -> Awaitable[Body]:
        """Give the record of a GUID, or store one."""
        return self._answer(message.type, message.fields())

    async def _answer(self, type_: str, body: Mapping[str, Any]) -> Body:
        try:
            if type_ == "read":
                return _said(200, value=await self._registry.get(_guid(body)))
            if type_ in ("create", "update"):
                guid, jwt = _guid(body), _text(body, "jwt", "value")
                await self._registry.put(guid, jwt, _optional(body, "previous"))
                return _said(200)
            raise BadMessage("The global registry takes READ and CREATE.")
        except NodeError as refusal:
            self.info.failed += 1
            return _said(refusal.code, refusal.description)


def _guid(body: Mapping[str, Any]) -> str:
    guid = _text(body, "guid", "resource")
    if len(guid) > MAX_GUID:
        raise BadMessage(f"A GUID has at most {MAX_GUID} characters.")
    return guid.removeprefix("user-guid://")


def _text(body: Mapping[str, Any], name: str, other: str) -> str:
    """A text that the field writes under one of two names."""
    if not (text := _optional(body, name) or _optional(body, other)):
        raise BadMessage(f"The body lacks `{name}` (or `{other}`).")
    return text


def _optional(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if not isinstance(value, str | None):
        raise BadMessage(f"The field `{name}` must be a text.")
    return value


def _said(code: int, text: str = "", value: str | None = None) -> Body:
    words = text or ("OK" if code == 200 else HTTPStatus(code).phrase)
    body: Body = {"Code": code, "code": code, "Description": words, "description": words,
                  "desc": words, "Message": words}  # fmt: skip
    if value is not None:
        body |= {"Value": value, "value": value}
    return body


def _path(guid: str) -> str:
    return f"/guid/{quote(guid, safe='')}"


def _fields(answer: Answer) -> Mapping[str, Any]:
    return answer.body if isinstance(answer.body, dict) else {}
