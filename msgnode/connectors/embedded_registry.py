"""The embedded domain registry behind the connector: calls registry.api off the event loop.

Changes are committed in groups, in the order of the requests; at most MAX_CHANGES wait. Waiting
searches share statements: those by a URL in one thread, those by other keys in another; at most
MAX_SEARCHES of either wait. Rare requests (the end of runtimes, a removal by name) run in a few
threads of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from django.conf import settings

from msgnode.bus.ports import Body
from msgnode.core import addresses
from msgnode.core.errors import Conflict, NodeError, NotFound
from msgnode.storage.database_threads import DatabaseThreads
from msgnode.storage.fence import Check, unfenced
from msgnode.storage.group_commit import GroupCommit
from registry import api
from registry.api import Claimant, Command, Entry, Kind, Search

from . import registry_requests
from .registry_requests import Change, Find, Refresh, Register, Remove, Request

THREADS = 4
MAX_SEARCHES = 5_000
MAX_CHANGES = 20_000
URLS_AT_ONCE = 250
"""URLs in one statement."""
SEARCHES_AT_ONCE = 25
"""Searches by other keys, each of which may find MAX_MATCHES entries."""
TOO_MANY = "The registry has too many searches waiting; try again later."

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
            "registry-writer", self._apply, api.MAX_BATCH, capacity=MAX_CHANGES, fenced=fenced
        )
        self._by_url: GroupCommit[Find] = GroupCommit(
            "registry-by-url", _found_by_url, URLS_AT_ONCE, capacity=MAX_SEARCHES, refusal=TOO_MANY
        )
        self._by_key: GroupCommit[Find] = GroupCommit(
            "registry-search", _found, SEARCHES_AT_ONCE, capacity=MAX_SEARCHES, refusal=TOO_MANY
        )
        self._threads = DatabaseThreads("registry", THREADS, MAX_SEARCHES, TOO_MANY)

    def carry_out(self, request: Request, by: Claimant | None) -> Awaitable[Body]:
        """Answer a request. Queued requests keep their order."""
        match request:
            case Find() if _is_by_url(request):
                return self._by_url.submit(request)
            case Find():
                return self._by_key.submit(request)
            case Register(kind, url, body, user):
                return self._commits.submit(api.registration(kind, url, dict(body), user, by))
            case Refresh(kind, url):
                return self._commits.submit(api.KeepAlive(kind, api.key(url, "URL"), by))
            case Change(kind, url, body):
                return self._commits.submit(
                    api.update_of(kind, api.key(url, "URL"), dict(body), by)
                )
            case Remove(kind, url, user, name) if url:
                of_user = user if user and kind is Kind.HYPERTY else None  # objects have no user
                return self._commits.submit(
                    api.Disconnect(kind, api.key(url, "URL"), of_user, by=by)
                )
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
        """Stop: answer queued requests, except those that wait for the few threads."""
        self._threads.stop()
        await self._by_url.stop()
        await self._by_key.stop()
        await self._commits.stop()

    def _apply(self, commands: list[Command]) -> Sequence[Body | NodeError]:
        outcomes = api.apply(commands, check=self._check)
        return [
            outcome if isinstance(outcome, NodeError) else dict(registry_requests.DONE)
            for outcome in outcomes
        ]


def _is_by_url(request: Find) -> bool:
    """Whether one entry is asked for by what can be its URL, and nothing else."""
    url = request.search.url
    if not url.isprintable() or len(url) > addresses.MAX_HELD or request.name or request.page:
        return False
    return bool(url) and request.search == Search(request.search.kind, url=url)


def _found_by_url(requests: list[Find]) -> list[Body]:
    """The answers to searches by URLs."""
    found: dict[tuple[Kind, str], Entry] = {}
    for kind in Kind:
        asking = [each for each in requests if each.search.kind is kind]
        urls = {url for each in asking for url in (each.search.url, *each.also)}
        if urls:
            found |= {(kind, entry.url): entry for entry in api.by_urls(kind, list(urls))}
    answers = []
    for request in requests:
        places = [(request.search.kind, url) for url in (request.search.url, *request.also)]
        entry = next((found[place] for place in places if place in found), None)
        answers.append(_answered(request, [entry] if entry is not None else []))
    return answers


def _found(requests: list[Find]) -> list[Body | NodeError]:
    """Answer searches by other keys; a key that matches no hyperty may name a data object."""
    outcomes = api.find_each([request.search for request in requests])
    asked = list(requests)
    again = [
        number
        for number, outcome in enumerate(outcomes)
        if not outcome and not isinstance(outcome, NodeError) and requests[number].name
    ]
    for number in again:
        asked[number] = Find(
            Search(Kind.OBJECT, name=requests[number].name), page=requests[number].page
        )
    named = api.find_each([asked[number].search for number in again])
    for number, found in zip(again, named, strict=True):
        search = requests[number].search
        if not isinstance(found, NodeError):
            found = [entry for entry in found if _has_all(entry, search)]
        outcomes[number] = found
    return [
        outcome if isinstance(outcome, NodeError) else _answered(request, outcome)
        for request, outcome in zip(asked, outcomes, strict=True)
    ]


def _answered(request: Find, entries: list[Entry]) -> Body:
    records = {entry.url: api.record(entry) for entry in entries}
    code = api.outcome(entries)
    unavailable = int(settings.REGISTRY["UNAVAILABLE_CODE"])
    return registry_requests.found(request, code, records, unavailable)


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
    return dict(registry_requests.DONE)
