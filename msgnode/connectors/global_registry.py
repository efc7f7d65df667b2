"""The connector to the global registry, global://registry, embedded or remote.

docs/reference/registry.md, section B4.
All forms of the field are one request: READ (guid) or CREATE (guid, jwt), with the guid in `guid`
or `resource`, the record in `jwt` or `value`; update is create. Answers have the keys of both
generations, capitalised and not. An error has no Value, because clients would take it for a record.
With `previous`, the digest of the record that the writer has seen ("" for none), the embedded
registry refuses to overwrite another's change; clients of the field do not use it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import quote

from msgnode.bus.ports import Body, Component, Listener
from msgnode.core.errors import BadMessage, Conflict, NodeError, TooMany, Unavailable
from msgnode.core.http_limits import WINDOW
from msgnode.core.messages import Message
from msgnode.core.rates import LockedRates
from msgnode.net.back_end import Answer, BackEnd
from msgnode.storage.database_threads import DatabaseThreads
from registry import api

from .asking import asked_by, source_of_caller
from .embedded_registry import EmbeddedRegistry

MAX_GUID = 300
"""Characters, with the scheme."""
THREADS = 2
MAX_PROOFS = 500
AT_ONCE = 32
"""Records of one source that wait or are being proved."""
MAX_SOURCES = 10_000
TOO_MANY = "The global registry has too many records to prove; try again later."

Charge = Callable[[], None]
"""Called before something that takes long; raises TooMany."""


class GlobalRegistry(Protocol):
    """The registry behind the connector. Both raise NodeError."""

    def get(self, guid: str) -> Awaitable[str]:
        """The signed record of a GUID, as a JWT."""
        ...

    def put(self, guid: str, jwt: str, previous: str | None, charge: Charge) -> Awaitable[object]:
        """Store a record; `previous` is the digest that the stored one must have, if any."""
        ...


class EmbeddedGlobalRegistry:
    """The records of this node: read in the threads of the embedded registry, proved in own ones.

    What has timed out before its turn is not proved.
    """

    def __init__(self, registry: EmbeddedRegistry) -> None:
        self._registry = registry
        self._proving = DatabaseThreads("global-registry", THREADS, MAX_PROOFS, TOO_MANY)

    def get(self, guid: str) -> Awaitable[str]:
        """Read it in a thread."""
        return self._registry.in_thread(lambda: api.global_get(guid))

    def put(self, guid: str, jwt: str, previous: str | None, charge: Charge) -> Awaitable[object]:
        """Store it in a thread, if the stored one still has the digest `previous`."""

        def check(stored: str | None) -> None:
            if (api.global_digest(stored) if stored else "") != previous:
                raise Conflict("The record has been changed in the meantime.")

        condition = None if previous is None else check
        return self._proving.run(lambda: api.global_put(guid, jwt, condition, charge))

    def stop(self) -> None:
        """Stop; records that wait to be proved are not stored."""
        self._proving.stop()


class RemoteGlobalRegistry:
    """Records of a global registry over HTTP."""

    def __init__(self, back_end: BackEnd) -> None:
        self._back_end = back_end

    async def get(self, guid: str) -> str:
        """Ask the remote registry; raises RemoteRefusal for any other answer than 200."""
        answer = await self._back_end.send("GET", _path(guid))
        value = _fields(answer).get("Value")
        if answer.status != 200 or not isinstance(value, str):
            raise RemoteRefusal(answer)
        return value

    async def put(self, guid: str, jwt: str, previous: str | None, charge: Charge) -> None:
        """Send it there; the protocol has no condition, so `previous` does not count."""
        answer = await self._back_end.send("PUT", _path(guid), jwt.encode())
        if answer.status != 200:
            raise RemoteRefusal(answer)


class RemoteRefusal(NodeError):
    """The remote registry's own refusal, passed on with its code."""

    def __init__(self, answer: Answer) -> None:
        said = _fields(answer).get("Explanation") or _fields(answer).get("Description")
        super().__init__(said if isinstance(said, str) else "")
        self.code = answer.status if answer.status >= 400 else 502  # type: ignore[misc]


class GlobalRegistryConnector(Component):
    """Relays to a GlobalRegistry.

    `writes_per_minute` is how many records a source may send to it.
    """

    name = "global-registry"
    kind = "connector"

    def __init__(self, registry: GlobalRegistry, writes_per_minute: int) -> None:
        super().__init__(("global://registry",))
        self._registry = registry
        self._writes_per_minute = writes_per_minute
        self._rates = LockedRates(max_keys=MAX_SOURCES)
        self._at_once: Counter[str] = Counter()

    def answer(self, message: Message, caller: Listener) -> Body | Awaitable[Body]:
        """Give the record of a GUID, or store one."""
        answer = self._answer(message.type, message.fields(), source_of_caller(caller))
        return asked_by(caller, answer)

    async def _answer(self, type_: str, body: Mapping[str, Any], source: str) -> Body:
        try:
            if type_ == "read":
                return _said(200, value=await self._registry.get(_guid(body)))
            if type_ in ("create", "update"):
                guid, jwt = _guid(body), _text(body, "jwt", "value")
                previous = _optional(body, "previous")
                await self._put(guid, jwt, previous, source)
                return _said(200)
            raise BadMessage("The global registry takes READ and CREATE.")
        except NodeError as refusal:
            self.info.failed += 1
            return _said(refusal.code, refusal.description)

    async def _put(self, guid: str, jwt: str, previous: str | None, source: str) -> None:
        """Store a record, at the cost of its source; what fails costs more."""
        self._check(source)
        self._at_once[source] += 1
        try:
            await self._registry.put(guid, jwt, previous, partial(self._charge, source))
        except (TooMany, Unavailable):
            raise
        except NodeError:
            self._rates.note(("costly", source), WINDOW)
            raise
        finally:
            self._at_once[source] -= 1
            if not self._at_once[source]:
                del self._at_once[source]

    def _check(self, source: str) -> None:
        """Count a record that a source sends. Raises TooMany."""
        if self._at_once[source] >= AT_ONCE:
            raise TooMany(f"More than {AT_ONCE} records from this address at once.")
        if self._rates.count(("costly", source), WINDOW) >= api.costly_records_per_minute():
            raise TooMany(api.TOO_MANY_COSTLY)
        if self._rates.grant(("record", source), WINDOW, self._writes_per_minute):
            raise TooMany("Too many records for the global registry from this address.")

    def _charge(self, source: str) -> None:
        """Count a record that costs much. Raises TooMany."""
        if self._rates.grant(("costly", source), WINDOW, api.costly_records_per_minute()):
            raise TooMany(api.TOO_MANY_COSTLY)


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
