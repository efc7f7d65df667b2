"""Executes changes of the domain registry in the database: many commands, one transaction.

Rules
- `apply()` locks what it touches in the order of URLs, has entries.py decide, and writes back; a
  refused command does not affect the others of its batch.
- A batch has at most MAX_BATCH commands, because SQLite has one writer and others wait for it.
- Two batches that register the same new URL at once collide on its unique row; the later one is
  retried and then sees the row.
- Listeners are called inside the transaction: what they write is committed with the change or not
  at all. They must not wait for anything else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from msgnode.core import row_statements
from msgnode.core.errors import InternalFault, NodeError, NotFound

from . import entries, ownership, rows
from .commands import Command, Disconnect, Done, KeepAlive, Register, Update
from .entries import Change, Entry, Kind
from .models import RegistryEntry, Runtime, StatusChange, User
from .records import idp_identifier

MAX_BATCH = 500
_ATTEMPTS = 4

log = logging.getLogger(__name__)

Listener = Callable[[Sequence[Change]], None]
listeners: list[Listener] = []
"""Called with every batch of announced changes (`Change.is_announced`), in its transaction."""


Condition = Callable[[Entry | None], None]
"""Raises a NodeError if an entry (None: there is none) must not be changed in its current state."""


def apply(
    commands: Sequence[Command],
    condition: Condition | None = None,
    check: Callable[[], None] | None = None,
) -> list[Done | NodeError]:
    """Execute commands in order, in one transaction.

    Args:
        commands: at most MAX_BATCH.
        condition: called with each locked entry first; an entry that does not exist and cannot be
            created is NotFound anyway.
        check: called first in the transaction; an error of it ends the transaction.

    Returns:
        For each command its result, or why it was refused.
    """
    if len(commands) > MAX_BATCH:
        raise ValueError(f"A batch has at most {MAX_BATCH} commands.")
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with transaction.atomic():
                if check is not None:
                    check()
                return _Batch(commands, timezone.now(), condition).run()
        except (IntegrityError, OperationalError) as error:
            if attempt == _ATTEMPTS or connection.in_atomic_block or not _may_pass(error):
                raise
            log.info("registry batch starts again", extra={"attempt": attempt, "why": str(error)})
    raise InternalFault  # unreachable: the last attempt returns or raises


def publish(changes: Iterable[Change]) -> None:
    """Write changes to the history and tell the listeners of the announced ones."""
    noted = list(changes)
    if noted:
        row_statements.insert(connection, StatusChange, rows.HISTORY, map(rows.history, noted))
    announced = [change for change in noted if change.is_announced]
    if announced:
        for listener in listeners:
            listener(announced)


def locked(model: type[RegistryEntry]) -> QuerySet[RegistryEntry]:
    """Rows to be locked when read, if the database can; SQLite locks everything."""
    found = model._default_manager.all()
    return found.select_for_update() if connection.features.has_select_for_update else found


def _may_pass(error: Exception) -> bool:
    """Whether a retry of the batch can succeed, because it collided with another."""
    deadlocked = getattr(error.__cause__, "sqlstate", "") in ("40P01", "40001")
    return deadlocked or isinstance(error, IntegrityError)


class _Batch:
    """One run of `apply`; `now` is the same for all its commands."""

    def __init__(
        self, commands: Sequence[Command], now: datetime, condition: Condition | None
    ) -> None:
        self.commands = commands
        self.condition = condition
        self.now = now
        self.stored: dict[tuple[Kind, str], Entry] = {}
        self.current: dict[tuple[Kind, str], Entry] = {}
        self.changes: list[Change] = []

    def run(self) -> list[Done | NodeError]:
        for kind in Kind:
            urls = sorted({command.url for command in self.commands if command.kind is kind})
            if urls:
                for entry in rows.read(kind, urls, is_locked=True):
                    self.stored[kind, entry.url] = entry
        self.current = dict(self.stored)
        self.owners = self._owners()
        self.reporters = self._reporters()
        outcomes = [self._try(command) for command in self.commands]
        self._write()
        publish(self.changes)
        return outcomes

    def _try(self, command: Command) -> Done | NodeError:
        before = self.current.get((command.kind, command.url))
        changes: tuple[Change, ...] = ()
        if before is not None:
            before, changes = entries.settled(before, self.now)
            self._keep(before, changes)
        try:
            if self.condition and (before is not None or isinstance(command, Register)):
                self.condition(before)
            after, changes = self._step(command, before)
            after = self._owned(command, before, after)
        except NodeError as refusal:
            return refusal
        self._keep(after, changes)
        return Done(after, bool(changes))

    def _step(self, command: Command, before: Entry | None) -> entries.Step:
        if isinstance(command, Register):
            kind, url, user = command.kind, command.url, command.user
            before_owner = before.owner if before is not None else ""
            mark = command.by.mark if command.by is not None else before_owner
            return entries.registered(
                kind, url, user, command.facts, before, self.now, self.owners, mark
            )
        if before is None:
            raise NotFound("Not Found")
        match command:
            case KeepAlive():
                return entries.kept_alive(before, self.now)
            case Update(facts=facts):
                return entries.updated(before, facts, self.now, self.owners)
            case Disconnect(user=owner, cause=cause):
                if owner is not None and owner != before.user:
                    raise NotFound("Not Found")
                return entries.disconnected(before, self.now, cause)

    def _owned(self, command: Command, before: Entry | None, after: Entry) -> Entry:
        """The entry after a change, with its owner.

        Raises:
            Forbidden: the client may not change it, or not name its reporter.
        """
        by = command.by
        if by is None:
            return after
        reported = self._reporter(before.reporter) if before is not None else None
        ownership.check(before, reported, by, isinstance(command, Register))
        if before is None or before.reporter != after.reporter:
            ownership.check_reporter(self._reporter(after.reporter), by)
        return ownership.kept(after, by)

    def _reporter(self, url: str | None) -> Entry | None:
        key = (Kind.HYPERTY, url or "")
        return self.current.get(key) or self.reporters.get(key)

    def _keep(self, entry: Entry, changes: tuple[Change, ...]) -> None:
        self.current[entry.kind, entry.url] = entry
        self.changes.extend(changes)

    def _owners(self) -> dict[str, str]:
        """The users of the reporters that are to change, by the reporters' URLs."""
        urls: set[str] = set()
        for command in self.commands:
            before = self.stored.get((command.kind, command.url))
            if before and command.kind is Kind.OBJECT and isinstance(command, Register | Update):
                new = command.facts.get("reporter")
                if new is not None and new != before.reporter:
                    urls |= {new, before.reporter or ""}
        if not urls:
            return {}
        return {entry.url: entry.user for entry in rows.read(Kind.HYPERTY, urls)}

    def _reporters(self) -> dict[tuple[Kind, str], Entry]:
        """The registered reporters of the data objects to be changed."""
        urls: set[str] = set()
        for command in self.commands:
            if command.kind is Kind.OBJECT and command.by is not None:
                before = self.stored.get((command.kind, command.url))
                urls.add((before and before.reporter) or "")
                if isinstance(command, Register | Update):
                    urls.add(command.facts.get("reporter") or "")
        found = rows.read(Kind.HYPERTY, urls - {""}) if urls - {""} else ()
        return {(Kind.HYPERTY, entry.url): entry for entry in found}

    def _write(self) -> None:
        written = [e for key, e in self.current.items() if self.stored.get(key) != e]
        self._name_users_and_runtimes(written)
        for kind in Kind:
            model = rows.MODELS[kind]
            mine = sorted((e for e in written if e.kind is kind), key=lambda e: e.url)
            fresh = [rows.values(e) for e in mine if (kind, e.url) not in self.stored]
            if fresh:
                row_statements.insert(connection, model, rows.COLUMNS[kind], fresh)
            for columns, values in self._changed(kind, mine).items():
                row_statements.update(connection, model, columns, values)

    def _changed(self, kind: Kind, entries: list[Entry]) -> dict[tuple[str, ...], list[Any]]:
        """The changed values of existing rows, by the columns that change."""
        alike: dict[tuple[str, ...], list[Any]] = {}
        for entry in entries:
            before = self.stored.get((kind, entry.url))
            if before is not None:
                old, new = rows.values(before), rows.values(entry)
                which = [at for at, value in enumerate(new) if value != old[at]]
                columns = (*(rows.COLUMNS[kind][at] for at in which), "url")
                values = alike.setdefault(columns, [])
                values.append((*(new[at] for at in which), entry.url))
        return alike

    def _name_users_and_runtimes(self, written: list[Entry]) -> None:
        """Insert the users and runtimes that the entries name for the first time."""
        users: set[str] = set()
        runtimes: set[str] = set()
        for entry in written:
            before = self.stored.get((entry.kind, entry.url))
            if entry.kind is Kind.HYPERTY and (before is None or before.user != entry.user):
                users.add(entry.user)
            if entry.runtime and (before is None or before.runtime != entry.runtime):
                runtimes.add(entry.runtime)
        if users:
            named = ((user, idp_identifier(user), self.now) for user in sorted(users))
            row_statements.insert(
                connection, User, ("user_id", "idp_identifier", "first_seen"), named, leaves=True
            )
        if runtimes:
            seen = ((url, self.now) for url in sorted(runtimes))
            row_statements.insert(connection, Runtime, ("url", "first_seen"), seen, leaves=True)


def expires_max() -> int:
    """The longest time without a keep-alive, in seconds."""
    return int(settings.REGISTRY["EXPIRES_MAX"])
