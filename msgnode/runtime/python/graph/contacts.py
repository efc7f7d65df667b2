"""The address book: names for GUIDs, kept by the runtime and shown to nobody."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from registry.global_registry import guids

from .errors import GraphError

MAX_CONTACTS = 10_000
MAX_NAME = 200
MAX_GROUPS = 100


@dataclass(frozen=True, slots=True)
class Contact:
    """Somebody; `last_update` is that of the newest record seen of him, ISO 8601."""

    guid: str
    first_name: str = ""
    last_name: str = ""
    groups: tuple[str, ...] = ()
    last_update: str = ""

    @property
    def name(self) -> str:
        """First and last name."""
        return f"{self.first_name} {self.last_name}".strip()


class Contacts:
    """The contacts of one runtime, in the order in which they were added.

    Args:
        key: in the storage.
        storage: None keeps them in memory only.
        on_failure: told when the storage refuses.
    """

    def __init__(
        self,
        key: str,
        storage: MutableMapping[str, str] | None,
        on_failure: Callable[[str, Exception], None],
    ) -> None:
        self._key = key
        self._storage = storage
        self._on_failure = on_failure
        self._all = {each.guid: each for each in self._read()}

    def __iter__(self) -> Iterator[Contact]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def get(self, guid: str) -> Contact | None:
        """The contact of a GUID, with or without scheme."""
        return self._all.get(guids.bare(guid))

    def find(self, text: str) -> list[Contact]:
        """Those whose first, last or whole name, or one of whose groups, begins so."""
        wanted = text.casefold()
        return [
            each
            for each in self._all.values()
            if any(
                word.casefold().startswith(wanted)
                for word in (each.name, each.last_name, *each.groups)
            )
        ]

    def add(
        self, guid: str, first_name: str = "", last_name: str = "", groups: Sequence[str] = ()
    ) -> Contact:
        """Add somebody.

        Raises:
            GraphError: 400 a value is not good, 409 the GUID is there, 413 the book is full.
        """
        contact = _checked(Contact(guids.bare(guid), first_name, last_name, tuple(groups)))
        if contact.guid in self._all:
            raise GraphError(409, f"{contact.guid} is a contact already.")
        if len(self._all) >= MAX_CONTACTS:
            raise GraphError(413, f"There are {MAX_CONTACTS} contacts, which is the most.")
        return self._put(contact)

    def edit(self, guid: str, **changes: Any) -> Contact:
        """Change names or groups. Raises GraphError (400, 404)."""
        contact = self.get(guid)
        if contact is None:
            raise GraphError(404, f"{guid} is no contact.")
        if "groups" in changes:
            changes["groups"] = tuple(changes["groups"])
        return self._put(_checked(replace(contact, **changes, guid=contact.guid)))

    def remove(self, guid: str) -> bool:
        """Forget somebody; whether he was a contact."""
        was = self._all.pop(guids.bare(guid), None) is not None
        if was:
            self._write()
        return was

    def _put(self, contact: Contact) -> Contact:
        self._all[contact.guid] = contact
        self._write()
        return contact

    def _read(self) -> list[Contact]:
        try:
            text = self._storage.get(self._key) if self._storage is not None else None
            return [
                _checked(Contact(**{**each, "groups": tuple(each["groups"])}))
                for each in json.loads(text or "[]")
            ]
        except Exception as error:
            self._on_failure(f"{self._key} cannot be read", error)
            return []

    def _write(self) -> None:
        if self._storage is None:
            return
        try:
            self._storage[self._key] = json.dumps([asdict(each) for each in self._all.values()])
        except Exception as error:
            self._on_failure(f"{self._key} cannot be written", error)


def _checked(contact: Contact) -> Contact:
    if not guids.FORM.fullmatch(contact.guid):
        raise GraphError(400, "A GUID has 43 letters of base64url.")
    names: tuple[object, ...] = (contact.first_name, contact.last_name, *contact.groups)
    if not all(isinstance(each, str) and len(each) <= MAX_NAME for each in names):
        raise GraphError(400, f"Names and groups are texts of at most {MAX_NAME} characters.")
    if len(contact.groups) > MAX_GROUPS:
        raise GraphError(400, f"A contact is in at most {MAX_GROUPS} groups.")
    return contact
