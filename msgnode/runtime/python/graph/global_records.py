"""The global registry as it is asked: nothing that it answers is believed without proof.

A record is that of the GUID that was asked for, signed by its own key, and not older than one seen
before: a registry that serves yesterday's record is refused like one that serves another's.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import body_of, code_of
from registry.global_registry import guids
from registry.global_registry.signed import digest as digest  # of a record's text

from . import records
from .contacts import Contacts
from .errors import GraphError
from .records import Person, Record

REGISTRY = "global://registry/"
MAX_SEEN = 10_000  # GUIDs whose newest record is remembered


class GlobalRecords:
    """The records of the global registry, as one runtime sees them."""

    def __init__(self, bus: MessageBus, url: str, contacts: Contacts) -> None:
        self._bus = bus
        self._url = url
        self._contacts = contacts
        self._seen: OrderedDict[str, datetime] = OrderedDict()

    async def read(self, guid: str) -> tuple[Person, Record, str]:
        """The person, the record and its text. Raises GraphError."""
        if not guids.FORM.fullmatch(guid):
            raise GraphError(400, "A GUID has 43 letters of base64url.")
        code, said = await self.ask("read", REGISTRY, {"guid": guid, "resource": guid})
        jwt = said.get("Value", said.get("value"))
        if code >= 300:
            raise _refusal(code, said)
        if jwt is None or jwt == "":  # as nodes of the field say that there is none
            raise GraphError(404, "GUID not found.")
        if not isinstance(jwt, str):
            raise GraphError(502, "The registry's record is no text.")
        person, record = await asyncio.to_thread(records.read, jwt)
        if person.guid != guid:
            raise GraphError(502, "The registry's record is that of another GUID.")
        self.note(person)
        return person, record, jwt

    async def put(self, guid: str, jwt: str, previous: str | None) -> None:
        """Store a record.

        Args:
            guid: whose it is.
            jwt: the record, signed with the person's key.
            previous: digest of the record that it replaces, "" if there was none, None if that is
                not known. A registry that knows the condition refuses with 409 if it has another.

        Raises:
            GraphError: the registry's code.
        """
        body = {"guid": guid, "resource": guid, "jwt": jwt, "value": jwt}
        if previous is not None:
            body["previous"] = previous
        code, said = await self.ask("create", REGISTRY, body)
        if code >= 300:
            raise _refusal(code, said)

    def newest(self, guid: str) -> datetime | None:
        """When the newest record that was seen of a GUID was updated."""
        contact = self._contacts.get(guid)
        if guid not in self._seen and contact is not None and contact.last_update:
            return datetime.fromisoformat(contact.last_update)
        return self._seen.get(guid)

    def note(self, person: Person) -> None:
        """Remember the newest record of a person. Raises GraphError (409) for an older one."""
        newest = self.newest(person.guid)
        if newest is not None and person.last_update < newest:
            text = f"The record is older than one of {newest.isoformat()} that was seen before."
            raise GraphError(409, text)
        self._seen[person.guid] = person.last_update
        self._seen.move_to_end(person.guid)
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        if newest != person.last_update and self._contacts.get(person.guid) is not None:
            self._contacts.edit(person.guid, last_update=person.last_update.isoformat())

    async def ask(
        self, type_: str, to: str, body: Mapping[str, Any]
    ) -> tuple[int, Mapping[str, Any]]:
        """Code and body of an answer, in the spelling of either generation.

        Raises:
            GraphError: 408; there is none.
        """
        message = {"type": type_, "from": self._url, "to": to, "body": dict(body)}
        try:
            answer = await self._bus.request(message)
        except TimeoutError:
            raise GraphError(408, f"{to} does not answer.") from None
        said = body_of(answer)
        code = said.get("Code")
        if isinstance(code, int) and not isinstance(code, bool):
            return code, said
        return code_of(answer), said


def words_of(said: Mapping[str, Any]) -> str:
    """What an answer says in words, "" if nothing."""
    for name in ("Description", "description", "desc", "Message"):
        if isinstance(said.get(name), str) and said[name]:
            return str(said[name])[:500]
    return ""


def _refusal(code: int, said: Mapping[str, Any]) -> GraphError:
    return GraphError(code, words_of(said) or f"The global registry answered {code}.")
