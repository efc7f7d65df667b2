"""A registry that is not the node's own, behind the connector: a remote one, over HTTP, or another.

What they have in common is OutsideRegistry. Over HTTP, requests become the calls of
docs/reference/registry.md, section A5; `call_of` is pure. What that interface lacks is composed of
what it has: a data object is removed by a status update, by name after a search. Such a registry
knows no sessions, so this worker remembers what runtimes have registered through it, up to
MAX_REMEMBERED in all. It knows no owners either: an entry belongs to its runtime, or to who holds
its address, and is read before it is changed; a change in between goes unnoticed. Ended entries of
a remote one are polled (`run`); updates are known from the answers to them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from msgnode.bus.periodic import every
from msgnode.bus.ports import Body
from msgnode.core import addresses
from msgnode.core.errors import BadGateway, Conflict, Forbidden, NodeError, TooMany
from msgnode.net.back_end import Answer, BackEnd
from msgnode.storage.database_threads import in_any_thread
from registry.api import Claimant, Kind, Search

from . import registry_requests
from .registry_requests import Change, Find, Refresh, Register, Remove, Request

log = logging.getLogger(__name__)

MAX_REMEMBERED = 100_000
MAX_REPORTERS = 50
ENDED_AT_ONCE = 10
POLL_SECONDS = 5.0
_ANNOUNCED = ("live", "disconnected")

Written = Register | Refresh | Change | Remove

News = Callable[[list[tuple[str, str]]], None]
"""Takes (url, status) of entries; called in a thread."""


class Call(NamedTuple):
    """A call of the other registry."""

    method: str
    path: str
    body: dict[str, Any] | None = None


def call_of(request: Request) -> Call:
    """The HTTP call of a request."""
    match request:
        case Find(search=search):
            return Call("GET", _search_path(search))
        case Register(Kind.HYPERTY, url, body, user):
            return Call("PUT", _path("hyperty", "user", user, url), dict(body))
        case Register(_, url, body):
            return Call("PUT", _path("hyperty", "dataobject", url), {**body, "url": url})
        case Refresh(kind, url):
            return Call("PUT", _entry_path(kind, url), {})
        case Change(kind, url, body):
            facts = {key: value for key, value in body.items() if key != "guid"}
            return Call("PUT", _entry_path(kind, url), facts)
        case Remove(Kind.HYPERTY, url, user) if user:
            return Call("DELETE", _path("hyperty", "user", user, url))
        case Remove(kind, url):
            return Call("PUT", _entry_path(kind, url), {"status": "disconnected"})


class OutsideRegistry:
    """A registry that knows neither sessions nor owners; one for the worker.

    `send` asks it. Its answers have the codes and the records of docs/reference/registry.md: to a
    search for one entry its record, to others the records by URL.
    """

    says_what_changed = True
    """Whether its answer to a hyperty's change says if the status was another before."""

    def __init__(self, unavailable_code: int, news: News) -> None:
        self._unavailable_code = unavailable_code
        self._news = news
        self._of: OrderedDict[tuple[Kind, str], str] = OrderedDict()  # entry -> runtime

    async def send(self, request: Request) -> Answer:
        """Have the registry carry out a request. Raises NodeError."""
        raise NotImplementedError

    async def carry_out(self, request: Request, by: Claimant | None) -> Body:
        """Do it at the remote registry, once it is known that the claimant may."""
        if isinstance(request, Find):
            return await self._find(request)
        if isinstance(request, Remove) and not request.url:
            return await self._remove_named(request.name, by)
        needs_status = self._needs_status(request)
        entry = await self._entry(request) if by or needs_status else None
        _check(request, entry, by)
        before = _text(entry, "status") if needs_status else None
        answer = await self.send(request)
        if answer.status != 200:
            return registry_requests.error(answer.status, _message(answer))
        self._remember(request)
        await self._tell(request, answer, before)
        return dict(registry_requests.DONE)

    async def runtimes_gone(
        self, runtime_urls: Sequence[str], live: Mapping[str, frozenset[str]]
    ) -> None:
        """Disconnect what these runtimes have registered through this worker, a few at a time.

        If a runtime still has any session, all its entries stay: only the other registry knows
        their owners.
        """
        urls = {each for url in runtime_urls for each in (url, addresses.runtime_twin(url))}
        theirs = [entry for entry, runtime in self._of.items() if runtime in urls]
        turns = asyncio.Semaphore(ENDED_AT_ONCE)

        async def end(entry: tuple[Kind, str]) -> None:
            async with turns:
                if self._of.pop(entry, None) is None:
                    return
                try:
                    await self.carry_out(Change(*entry, {"status": "disconnected"}), None)
                except NodeError as error:
                    log.warning("A registration could not be ended: %s", error)

        await asyncio.gather(*map(end, theirs))

    async def _find(self, request: Find) -> Body:
        search = request.search
        if search.kind is Kind.OBJECT and (search.user or search.email or search.guid):
            return await self._find_owned(request)
        answer = await self.send(request)
        for url in request.also:
            if answer.status != 404:
                break
            request = replace(request, search=replace(search, url=url))
            answer = await self.send(request)
        if answer.status == 404 and request.name:
            request = Find(Search(Kind.OBJECT, name=request.name), page=request.page)
            answer = await self.send(request)
        if answer.status not in (200, 408):
            return registry_requests.error(answer.status, _message(answer))
        if not isinstance(answer.body, dict):
            raise BadGateway("The domain registry gave no valid answer.")
        records = {request.search.url: answer.body} if is_one(request) else answer.body
        if request.search.scheme:
            records = _of_scheme(records, request.search.scheme)
        return registry_requests.found(request, answer.status, records, self._unavailable_code)

    async def _find_owned(self, request: Find) -> Body:
        """Data objects of a user: those that the user's hyperties report."""
        search = request.search
        owner = Search(Kind.HYPERTY, user=search.user, email=search.email, guid=search.guid)
        answer = await self.send(Find(owner))
        reporters = answer.body if isinstance(answer.body, dict) else {}
        if answer.status not in (200, 408):
            return registry_requests.error(answer.status, _message(answer))
        if len(reporters) > MAX_REPORTERS:
            raise TooMany(f"The user has more than {MAX_REPORTERS} hyperties; ask for one's.")
        records: dict[str, Any] = {}
        for url in reporters:
            of_one = replace(search, user="", email="", guid="", reporter=url)
            answer = await self.send(Find(of_one))
            if answer.status == 200 and isinstance(answer.body, dict):
                records |= answer.body
        if search.scheme:
            records = _of_scheme(records, search.scheme)
        return registry_requests.found(request, 200, records, self._unavailable_code)

    async def _remove_named(self, name: str, by: Claimant | None) -> Body:
        answer = await self.send(Find(Search(Kind.OBJECT, name=name)))
        if answer.status != 200 or not isinstance(answer.body, dict):
            return registry_requests.error(answer.status, _message(answer))
        mine = [url for url, entry in answer.body.items() if by is None or _owns(entry, by)]
        if not mine and len(answer.body) > 1:
            raise Conflict("Several data objects have this name; delete one by its URL.")
        for url in mine or answer.body:
            answered = await self.carry_out(Remove(Kind.OBJECT, url), by)
            if answered["code"] != 200:
                return answered
        return dict(registry_requests.DONE)

    def _needs_status(self, request: Written) -> bool:
        """Whether news of a change depend on the status before, which its answer does not tell."""
        is_told = request.kind is Kind.HYPERTY and self.says_what_changed
        return not is_told and self.status_after(request) is not None

    def status_after(self, request: Written) -> str | None:
        """The new status of a change; None if it has none, or a feed will report it."""
        return _status_after(request)

    def _remember(self, request: Request) -> None:
        if isinstance(request, Register):
            runtime = request.body.get("runtime")
            if isinstance(runtime, str) and runtime:
                self._of[request.kind, request.url] = runtime
                if len(self._of) > MAX_REMEMBERED:
                    self._of.popitem(last=False)
        elif isinstance(request, Remove):
            self._of.pop((request.kind, request.url), None)

    async def _entry(self, request: Written) -> Mapping[str, Any] | None:
        """The record of the entry that a request is about, None if there is none."""
        answer = await self.send(Find(Search(request.kind, url=request.url), is_single=True))
        known = answer.status in (200, 408) and isinstance(answer.body, dict)
        return answer.body if known else None

    async def _tell(self, request: Written, answer: Answer, before: str | None) -> None:
        """Report a changed status; the remote feed only reports ended entries."""
        status = self.status_after(request)
        if status not in _ANNOUNCED or not isinstance(answer.body, dict):
            return
        if answer.body.get("statusChanged") == "true" or before not in (None, status):
            await in_any_thread(self._news, [(request.url, status)])


class RemoteRegistry(OutsideRegistry):
    """Carries out requests over HTTP."""

    def __init__(self, back_end: BackEnd, unavailable_code: int, news: News) -> None:
        super().__init__(unavailable_code, news)
        self._back_end = back_end
        self._untold: list[str] = []  # entries of the feed that have ended

    async def send(self, request: Request) -> Answer:
        """Send its HTTP call."""
        call = call_of(request)
        content = b"" if call.body is None else msgspec.json.encode(call.body)
        return await self._back_end.send(call.method, call.path, content)

    async def run(self) -> None:
        """Poll the feed of ended entries until cancelled; a round that fails is made again."""
        await every(POLL_SECONDS, self._poll_once, "registry feed")

    async def _poll_once(self) -> None:
        try:
            await self.poll()
        except NodeError as error:
            log.warning("The feed of the registry cannot be read: %s", error)

    async def poll(self) -> None:
        """Pass on the entries that have ended since the last poll.

        The feed reports each entry once, so it is not read again before its last entries were
        passed on. Invalid addresses are left out.
        """
        if not self._untold:
            answer = await self._back_end.send("GET", "/registry/updated")
            told = answer.body if answer.status == 200 and isinstance(answer.body, dict) else ()
            self._untold = [url for url in told if _is_address(url)]
            if len(self._untold) < len(told):
                left = len(told) - len(self._untold)
                log.warning("The feed of the registry names %d entries that cannot be.", left)
        if self._untold:
            await in_any_thread(self._news, [(url, "disconnected") for url in self._untold])
            self._untold = []


def is_one(request: Find) -> bool:
    """Whether a search is for one entry, and answered with its record."""
    search = request.search
    has_criteria = bool(search.resources or search.data_schemes)
    return request.is_single and not (search.kind is Kind.OBJECT and has_criteria)


def _is_address(url: str) -> bool:
    return not addresses.identifier_fault(url) and len(url) <= addresses.MAX_HELD


def _status_after(request: Written) -> str | None:
    """The new status of a change; None if it has none, or the feed will report it."""
    if isinstance(request, Refresh):
        return "live"
    if isinstance(request, Register) and request.kind is Kind.HYPERTY:
        return None
    body = call_of(request).body or {}
    status = body.get("status")
    return status if isinstance(status, str) else None


def _search_path(search: Search) -> str:
    query = _query(search)
    if search.kind is Kind.OBJECT:
        for by in ("url", "name", "reporter"):
            if key := getattr(search, by):
                return _path("hyperty", "dataobject", by, key) + (f"/do?{query}" if query else "")
    for by in ("url", "user", "guid", "email"):
        if key := getattr(search, by):
            return _path("hyperty", by, key) + (f"/hyperty?{query}" if query else "")
    raise BadGateway("The domain registry does not offer this search.")


def _query(search: Search) -> str:
    parts = (("resources", search.resources), ("dataSchemes", search.data_schemes))
    return "&".join(
        f"{name}={','.join(quote(word, safe='') for word in words)}"
        for name, words in parts
        if words
    )


def _entry_path(kind: Kind, url: str) -> str:
    return _path("hyperty" if kind is Kind.HYPERTY else "dataobject", "url", url)


def _path(*parts: str) -> str:
    return "".join("/" + quote(part, safe="") for part in parts)


def _message(answer: Answer) -> str:
    said = answer.body.get("message") if isinstance(answer.body, dict) else None
    return said if isinstance(said, str) else "Not Found" if answer.status == 404 else "Refused"


def _of_scheme(records: dict[str, Any], scheme: str) -> dict[str, Any]:
    return {url: r for url, r in records.items() if addresses.parse(url).scheme == scheme}


def _check(request: Written, entry: Mapping[str, Any] | None, by: Claimant | None) -> None:
    """Whether the client owns an entry. The registry itself refuses entries of other users."""
    if by is None or entry is None or _owns(entry, by):
        return
    user = getattr(request, "user", "")
    if not user or user == entry.get("userID"):
        raise Forbidden(f"{request.url} is registered by somebody else.")


def _owns(entry: Any, by: Claimant) -> bool:
    return by.holds or (isinstance(entry, dict) and entry.get("runtime") in by.runtimes)


def _text(entry: Mapping[str, Any] | None, name: str) -> str | None:
    value = entry.get(name) if entry is not None else None
    return value if isinstance(value, str) else None
