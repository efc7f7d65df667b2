"""runtime.graph: a GUID of one's own, the global registry, and where a person's hyperties are.

words = await runtime.graph.create()                  # sixteen, to be written down
runtime.graph.add_user_id("user://example.com/alice")
await runtime.graph.publish()
for found in await runtime.graph.hyperties(guid):     # in all domains that he names
    ...

It speaks as `<runtime>/graph-connector`. The words and the key are in memory only; keeping the
words is the application's part.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgnode.runtime.python.message_bus import MessageBus
from registry.global_registry import guids

from . import records
from .contacts import Contacts
from .errors import GraphError
from .global_records import GlobalRecords, digest, words_of
from .keys import Keys, keys_of, new_words
from .records import Edit, Person, Record, UserId

TRIES = 4  # to publish while others publish the same record
MAX_DOMAINS = 32  # asked for one person
AT_A_TIME = 4
HOST = re.compile(r"[a-z0-9_.-]{1,253}(:[0-9]{1,5})?")
MAX_HYPERTIES = 1_000  # taken of one domain


@dataclass(frozen=True, slots=True)
class Found:
    """What one domain's registry says of one of a person's user ids.

    Attributes:
        user_id: as the record names it.
        code: of the domain's answer: 200, 404 nothing there, 408 none reachable or no answer, …
        text: what went wrong.
        hyperties: their entries. `confirmed` is true in one that names the person's GUID; of others
            only the person says that they are his.
    """

    user_id: UserId
    code: int
    text: str
    hyperties: tuple[dict[str, Any], ...]


class GraphConnector:
    """That of one runtime."""

    def __init__(self, bus: MessageBus, contacts: Contacts) -> None:
        self.url = f"{bus.runtime_url}/graph-connector"
        self.contacts = contacts
        self.person: Person | None = None
        self._records = GlobalRecords(bus, self.url, contacts)
        self._keys: Keys | None = None
        self._guid = ""
        self._edits: list[Edit] = []
        self._record: Record | None = None  # one's own, as last seen
        self._publishing = asyncio.Lock()

    @property
    def guid(self) -> str:
        """One's own, "" before create() or use()."""
        return self._guid

    # --- one's own record -------------------------------------------------------------------------

    async def create(self) -> str:
        """Become somebody new. Nothing is published.

        Returns:
            The sixteen words: show them to the user, who needs them at other devices.
        """
        words = new_words()
        self._become(await asyncio.to_thread(keys_of, words))
        return words

    async def use(self, words: str) -> bool:
        """Become who has these words, and read his record.

        Returns:
            Whether the registry has a record of him that is in force; it is in `person` then.

        Raises:
            GraphError: 400 for the words; else as lookup(), and one is who one was before.
        """
        keys = await asyncio.to_thread(keys_of, words)
        for guid in (keys.guid, keys.legacy_guid):
            try:
                person, record, _ = await self._records.read(guid)
            except GraphError as error:
                if error.code == 404:
                    continue
                if error.code != 410:
                    raise
                self._become(keys, guid)  # a record that has timed out is renewed by publish()
                return False
            self._become(keys, guid)
            self.person, self._record = person, record
            return not person.is_revoked
        self._become(keys)
        return False

    def add_user_id(self, uid: str, domain: str = "") -> None:
        """With the next publish(): a user id of one's own.

        Args:
            uid: such as user://example.com/alice.
            domain: whose registry knows its hyperties; that of the uid if it is left out.

        Raises:
            GraphError: 400; it names no domain.
        """
        listed = UserId(uid, domain.lower() or records.domain_of(uid))
        if not uid.isprintable() or not uid or not listed.domain:
            raise GraphError(400, f"{uid!r} names no user of a domain.")

        def add(record: Record) -> None:
            if listed not in map(records.user_id, record["userIDs"]):
                record["userIDs"].append({"uid": listed.uid, "domain": listed.domain})

        self._edits.append(add)

    def remove_user_id(self, uid: str) -> None:
        """With the next publish(): no more of that user id."""
        self._edits.append(lambda record: _keep(record, "userIDs", lambda each: _uid(each) != uid))

    def add_legacy_id(self, type_: str, category: str, id_: str, description: str = "") -> None:
        """With the next publish(): a way to be reached from elsewhere, such as a number."""
        listed = {"type": type_, "category": category, "id": id_, "description": description}

        def add(record: Record) -> None:
            known = record.setdefault("legacyIDs", [])
            if listed not in known:
                known.append(listed)

        self._edits.append(add)

    def remove_legacy_id(self, id_: str) -> None:
        """With the next publish(): no more of it."""
        self._edits.append(
            lambda record: _keep(
                record,
                "legacyIDs",
                lambda each: not isinstance(each, dict) or each.get("id") != id_,
            )
        )

    def set_defaults(self, **defaults: str) -> None:
        """With the next publish(): what one prefers for `voice`, `chat`, `video`."""
        unknown = defaults.keys() - {"voice", "chat", "video"}
        if unknown or not all(isinstance(each, str) for each in defaults.values()):
            raise GraphError(400, "Defaults are texts for voice, chat and video.")
        self._edits.append(lambda record: record["defaults"].update(defaults))

    def set_active(self, is_active: bool) -> None:
        """With the next publish(): whether one can be reached at all for now."""
        self._edits.append(lambda record: record.update(active=int(is_active)))

    async def publish(self) -> Person:
        """Make what has been changed, and what the registry has already, the record; signed.

        Without a change the record is renewed: it is good for ten years from now.

        Raises:
            GraphError: the changes are kept and go with the next one.
        """
        async with self._publishing:
            edits = list(self._edits)
            person = await self._publish(edits)
            del self._edits[: len(edits)]
            return person

    async def revoke(self) -> None:
        """End this GUID for good. Nobody can take it back. Raises GraphError."""
        async with self._publishing:
            await self._publish([lambda record: record.update(revoked=1, active=0)])
            self._edits.clear()

    async def _publish(self, edits: Iterable[Edit]) -> Person:
        keys = self._keys
        if keys is None:
            raise GraphError(400, "There is no GUID yet: create() or use(words) comes first.")
        for left in reversed(range(TRIES)):
            record, previous = await self._base(keys)
            if record["revoked"]:
                raise GraphError(410, "The record has been revoked.")
            for edit in edits:
                edit(record)
            after = self._records.newest(self._guid)
            jwt = await asyncio.to_thread(records.sign, record, keys, after, datetime.now(UTC))
            try:
                await self._records.put(self._guid, jwt, previous)
            except GraphError as error:
                if error.code == 409 and left:  # published meanwhile at another device
                    continue
                raise
            break
        person, self._record = await asyncio.to_thread(records.read, jwt)
        self._records.note(person)
        self.person = person
        return person

    async def _base(self, keys: Keys) -> tuple[Record, str | None]:
        """The record that changes are made to, and the digest of the one that the registry has.

        The digest is "" if it has none, None if it does not say.
        """
        try:
            _, record, jwt = await self._records.read(self._guid)
        except GraphError as error:
            if error.code not in (404, 410):
                raise
            known = self._record or records.new_record(keys) | {"guid": self._guid}
            return copy.deepcopy(known), "" if error.code == 404 else None
        return record, digest(jwt)

    # --- others' ----------------------------------------------------------------------------------

    async def lookup(self, guid: str) -> Person:
        """What the global registry has of a person.

        Raises:
            GraphError: 404 no record, 408 no answer, 409 the record is older than one seen before,
                410 revoked or timed out, 502 the answer proves nothing.
        """
        person, _, _ = await self._records.read(guids.bare(guid))
        if person.is_revoked:
            raise GraphError(410, "The record has been revoked by its owner.")
        if person.timeout <= datetime.now(UTC):
            raise GraphError(410, "The record has timed out.")
        return person

    async def hyperties(
        self, guid: str, resources: Iterable[str] = (), data_schemes: Iterable[str] = ()
    ) -> list[Found]:
        """The person's hyperties in all domains that he names, found by protocol on the fly.

        Args:
            guid: the person's.
            resources: what they must have, such as "chat".
            data_schemes: of the data objects that they must handle, such as "comm".

        Returns:
            One for each user id, in his order. A domain that fails or lies fails for itself.

        Raises:
            GraphError: as lookup().
        """
        person = await self.lookup(guid)
        criteria = {"resources": list(resources), "dataSchemes": list(data_schemes)}
        wanted = {name: each for name, each in criteria.items() if each}
        places = asyncio.Semaphore(AT_A_TIME)

        async def ask(user_id: UserId) -> Found:
            async with places:
                return await self._ask_domain(user_id, person.guid, wanted)

        found = await asyncio.gather(*map(ask, person.user_ids[:MAX_DOMAINS]))
        text = f"Not asked: a person's first {MAX_DOMAINS} user ids are."
        left = [Found(each, 429, text, ()) for each in person.user_ids[MAX_DOMAINS:]]
        return [*found, *left]

    async def _ask_domain(self, user_id: UserId, guid: str, wanted: Mapping[str, Any]) -> Found:
        if not HOST.fullmatch(user_id.domain):
            return Found(user_id, 400, "This names no domain.", ())
        body = {"resource": user_id.uid} | ({"criteria": wanted} if wanted else {})
        try:
            code, said = await self._records.ask(
                "read", f"domain://registry.{user_id.domain}", body
            )
        except GraphError as error:
            return Found(user_id, error.code, str(error), ())
        value = said.get("value")
        entries = list(value.values()) if isinstance(value, dict) else value
        listed = entries if isinstance(entries, list) else []
        taken = [each for each in listed if isinstance(each, dict)]
        hyperties = tuple(
            {**each, "confirmed": each.get("guid") in (guid, f"{guids.SCHEME}{guid}")}
            for each in taken[:MAX_HYPERTIES]
        )
        return Found(user_id, code, "" if code == 200 else words_of(said), hyperties)

    # --- the registry -----------------------------------------------------------------------------

    def _become(self, keys: Keys, guid: str = "") -> None:
        self._keys, self._guid = keys, guid or keys.guid
        self.person, self._record, self._edits = None, None, []


def _uid(listed: Any) -> str:
    return records.user_id(listed).uid


def _keep(record: Record, name: str, is_kept: Callable[[Any], bool]) -> None:
    record[name] = [each for each in record.get(name) or [] if is_kept(each)]
