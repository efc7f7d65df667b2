"""The embedded domain registry behind the connector: requests to registry.api, off the event loop.

Changes are committed in groups in the order in which they were asked, at most MAX_CHANGES of them
waiting; searches run in a few threads, each with its own database connection, at most MAX_SEARCHES
waiting.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from django.conf import settings

from msgnode.bus.ports import Body
from msgnode.core.errors import Conflict, NodeError, NotFound
from msgnode.storage.database_threads import DatabaseThreads
from msgnode.storage.fence import Check, unfenced
from msgnode.storage.group_commit import GroupCommit
from registry import api
from registry.api import Claimant, Command, Entry, Kind, Search

from . import registry_answers
from .registry_requests import Change, Find, Refresh, Register, Remove, Request

THREADS = 4
MAX_SEARCHES = 5_000
MAX_CHANGES = 20_000

Result = TypeVar("Result")


class EmbeddedRegistry:
    """Carries out requests; one for the process.

    Args:
        check: raises inside a transaction if this worker may not write any more.
        fenced: called, in the thread that commits, when it did.
    """

    def __init__(self, check: Check = unfenced, fenced: Callable[[], None] | None = None) -> None:
        self._check = check
        self._commits: GroupCommit[Command] = GroupCommit(
            "registry-writer", self._apply, api.MAX_BATCH, room=MAX_CHANGES, fenced=fenced
        )
        self._threads = DatabaseThreads(
            "registry-search",
            THREADS,
            MAX_SEARCHES,
            "The registry has too many searches waiting; try again later.",
        )

    def carry_out(self, request: Request, by: Claimant | None) -> Awaitable[Body]:
        """What the request is answered. What is queued here is in order with earlier requests."""
        match request:
            case Find():
                return self.in_thread(lambda: _found(request))
            case Register(kind, url, body, user):
                return self._committed(api.registration(kind, url, dict(body), user, by))
            case Refresh(kind, url):
                return self._committed(api.KeepAlive(kind, api.key(url, "URL"), by))
            case Change(kind, url, body):
                return self._committed(api.update_of(kind, api.key(url, "URL"), dict(body), by))
            case Remove(kind, url, user, name) if url:
                of_user = user if user and kind is Kind.HYPERTY else None  # objects have no user
                return self._committed(api.Disconnect(kind, api.key(url, "URL"), of_user, by=by))
            case Remove(name=name):
                return self.in_thread(lambda: _remove_named(name, by, self._check))

    async def runtimes_gone(
        self, runtime_urls: Sequence[str], live: Mapping[str, frozenset[str]]
    ) -> None:
        """Disconnect what these runtimes registered; of those in `live` what absent owners did."""

        def end() -> None:
            if runtime_urls:
                api.runtimes_gone(runtime_urls)
            if live:
                api.owners_gone(live, bool(settings.SHARE_RUNTIME_URL))

        await self.in_thread(end)

    async def in_thread(self, call: Callable[[], Result]) -> Result:
        """Run a call that uses the database in one of the threads. Raises TooMany."""
        return await self._threads.run(call)

    async def stop(self) -> None:
        """Commit what was asked; searches that have not begun are dropped."""
        self._threads.stop()
        await self._commits.stop()

    def _apply(self, commands: list[Command]) -> Sequence[Any]:
        return api.apply(commands, check=self._check)

    def _committed(self, command: Command) -> Awaitable[Body]:
        return _answer(self._commits.submit(command))


async def _answer(done: Awaitable[Any]) -> Body:
    await done
    return dict(registry_answers.DONE)


def _found(request: Find) -> Body:
    search = request.search
    entries = api.find(search)
    if not entries and request.name:
        request = Find(Search(Kind.OBJECT, name=request.name), page=request.page)
        entries = [e for e in api.find(request.search) if _has_all(e, search)]
    records = {entry.url: api.record(entry) for entry in entries}
    code = api.outcome(entries)
    unavailable = int(settings.REGISTRY["UNAVAILABLE_CODE"])
    return registry_answers.found(request, code, records, unavailable)


def _has_all(entry: Entry, search: Search) -> bool:
    return set(search.resources) <= set(entry.resources) and set(search.data_schemes) <= set(
        entry.data_schemes
    )


def _remove_named(name: str, by: Claimant | None, check: Check) -> Body:
    """The runtime deletes its data objects by name; names are not unique."""
    entries = api.find(Search(Kind.OBJECT, name=name))
    if not entries:
        raise NotFound("Not Found")
    mine = [entry for entry in entries if by is None or api.owns(entry, by)]
    if not mine and len(entries) > 1:
        raise Conflict("Several data objects have this name; delete one by its URL.")
    gone = [api.Disconnect(Kind.OBJECT, entry.url, by=by) for entry in mine or entries]
    for start in range(0, len(gone), api.MAX_BATCH):
        outcomes = api.apply(gone[start : start + api.MAX_BATCH], check=check)
        for refusal in outcomes:
            if isinstance(refusal, NodeError):
                raise refusal
    return dict(registry_answers.DONE)
