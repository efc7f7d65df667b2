"""Hyperties that others reach, and how one finds and reaches those of others.

    echo = await runtime.hyperty("echo", handlers=lambda value, message: value, register="bob")
    (bob,) = await runtime.find(user="bob")
    answer = await echo.request(bob, "hello")

Rules
- A hyperty listens before its address is claimed at the node, and is claimed before it is
  registered.
- Claim and registration are kept alive, and made again where the node has lost them, until close().
- Its address is kept in the runtime's storage by its name; where another process holds it, this one
  gets another.
- A request is answered with what its handler returns, with the code of what it raises, or 405 where
  there is none.
- What cannot be reached says which step failed: explain() tells the same at any time.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from msgnode.core import addresses

from .arguments import check_address, check_bool, check_function, check_text, check_texts, wrong
from .destinations import LEGACY_SCHEMES, NoDestination, destination
from .listeners import Listening
from .message_bus import MessageBus
from .messages import Message, body_of, code_of
from .p2p.peer_to_peer import PeerToPeer
from .resolver import Resolver
from .settings import Settings
from .stub_list import StubEntry
from .syncher.errors import SyncError
from .syncher.stored_objects import Storage
from .syncher.sync_manager import SyncManager
from .syncher.talk import Body, InTime, ask_until_answered, decided

NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
_CLOSED = "The hyperty was closed."
TYPES = ("create", "read", "update", "delete", "subscribe", "unsubscribe", "execute", "*")

Handler = Callable[[Any, Message], Any]
Handlers = Handler | Mapping[str, Handler]


class AnswerError(Exception):
    """The final answer was an error, or there was none (408); `code` and `body` are its."""

    def __init__(self, body: Body, text: str) -> None:
        super().__init__(text)
        self.body = body
        self.code = code_of({"body": body})


class Refusal(SyncError):
    """Raised by a handler: who has asked gets this code and text."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a runtime does about an address, and how a message would get there.

    Attributes:
        address: which.
        is_here: whether somebody in this runtime listens to it.
        is_claimed, is_registered: at the node, in the registry; None for what is another's.
        stub: URL of the stub that reaches it, "" if none is loaded; `status` and `desc` are its.
        way: "here", "channel", "node" or "none".
        why: in words.
    """

    address: str
    is_here: bool
    is_claimed: bool | None
    is_registered: bool | None
    stub: str
    status: str
    desc: str
    way: str
    why: str


class Hyperty:
    """One hyperty; made by Runtime.hyperty(). `Syncher(runtime, its url)` shares objects."""

    def __init__(
        self, owner: Hyperties, name: str, url: str, handlers: Mapping[str, Handler], p2p: bool
    ) -> None:
        self.name = name
        self.url = url
        self._owner = owner
        self._bus = owner.runtime.bus
        self._handlers = dict(handlers)
        self._p2p = p2p
        self._in_time = InTime(self._bus)
        self._listening: Listening = self._bus.add_listener(url, self._received)

    async def request(
        self,
        to: str,
        value: Any = None,
        type: str = "create",  # noqa: A002 (the message's field)
        p2p: bool | None = None,
        seconds: float = 15.0,
    ) -> Any:
        """Ask somebody; the `value` of the answer.

        Args:
            to: an address.
            value: what JSON can say.
            type: of the message.
            p2p: whether to ask for a channel.
            seconds: after which nobody waits any more.

        Raises:
            AnswerError: with the code, and in its text which step failed.
        """
        message = self._message(to, value, type, p2p)
        if self._listening.is_removed:
            raise AnswerError({"code": 503, "desc": _CLOSED}, _CLOSED)
        try:
            answer = await self._bus.request(message, seconds)
        except TimeoutError as error:
            body: Body = {"code": 408, "desc": str(error)}
        else:
            body = body_of(answer)
            if code_of(answer) < 300:
                return body.get("value")
        code = code_of({"body": body})
        words = body.get("desc") or body.get("description") or f"{to} answered {code}."
        why = self._owner.explain(to, self.url).why
        raise AnswerError(body, f"{words} [{code} from {to}: {why}]")

    def send(
        self,
        to: str,
        value: Any = None,
        type: str = "update",  # noqa: A002 (the message's field)
        p2p: bool | None = None,
    ) -> None:
        """Tell somebody something; an answer that is an error goes to the error hook."""
        message = self._message(to, value, type, p2p)
        if self._listening.is_removed:
            self._bus.report("undeliverable.503", _CLOSED, message)
        else:
            self._bus.post_message(message)

    def on(self, type: str, handler: Handler) -> Callable[[], None]:  # noqa: A002
        """Have requests of a type handled, "*" for all others. Returns what ends it."""
        _check_handler("type", type, handler)
        self._handlers[type] = handler

        def remove() -> None:
            if self._handlers.get(type) is handler:
                del self._handlers[type]

        return remove

    async def close(self) -> None:
        """Take it out of the registry, give its address back, and hear nothing any more."""
        await self._owner.end(self)

    def stop(self) -> None:
        """Hear nothing any more."""
        self._listening.remove()
        self._in_time.close()

    def _message(self, to: str, value: Any, kind: str, p2p: bool | None) -> Message:
        check_address("to", to)
        if kind not in TYPES[:-1]:
            raise wrong("type", f"one of {', '.join(TYPES[:-1])}", kind)
        if p2p is not None:
            check_bool("p2p", p2p)
        body: Body = {} if value is None else {"value": value}
        if self._p2p if p2p is None else p2p:
            body["p2p"] = True
        return {"type": kind, "from": self.url, "to": to, "body": body}

    def _received(self, message: Message) -> None:
        kind, sender, body = message["type"], message["from"], body_of(message)
        if kind in ("response", "forward"):
            return  # the latter is for its Syncher
        others = self._bus.number_listening(self.url) > 1
        if kind == "create" and sender.endswith("/subscription") and others:
            return
        is_runtime = sender == f"{self._bus.runtime_url}/registry/" and "via" not in body
        if kind == "execute" and is_runtime:
            self._in_time.answer(message, self._leave)
            return
        handler = self._handlers.get(kind) or self._handlers.get("*")
        if handler is None and others:
            return

        def decide() -> Body | Awaitable[Body]:
            if handler is None:
                raise SyncError(405, f"The hyperty {self.name} has no handler for {kind}.")
            return decided(handler(body.get("value"), message), _told)

        self._in_time.answer(message, decide)

    async def _leave(self) -> Body:
        await self._owner.leave(self)
        return {"code": 200}


def _told(value: Any) -> Body:
    return {"code": 200} if value is None else {"code": 200, "value": value}


class Owner(Protocol):
    """What hyperties need of their runtime."""

    url: str
    bus: MessageBus
    settings: Settings
    resolver: Resolver
    p2p: PeerToPeer | None
    storage: Storage | None
    sync_manager: SyncManager

    @property
    def user(self) -> str:
        """The user URL of who is logged in, "" for nobody."""


class Hyperties:
    """The hyperties of one runtime."""

    def __init__(self, runtime: Owner) -> None:
        self.runtime = runtime
        self._domain = runtime.settings.domain
        self._all: dict[str, Hyperty] = {}

    async def make(
        self,
        name: Any,
        handlers: Any,
        register: Any,
        resources: Any,
        data_schemes: Any,
        p2p: Any,
        url: Any,
    ) -> Hyperty:
        """Make one that others can reach; see Runtime.hyperty()."""
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise wrong("name", "a text of 1 to 64 letters, digits, _, . and -", name)
        taken = _handlers(handlers)
        if not isinstance(register, bool) and not (isinstance(register, str) and register):
            shape = "True, False, or a user's name, e-mail address or URL"
            raise wrong("register", shape, register)
        check_texts("resources", resources)
        check_texts("data_schemes", data_schemes)
        check_bool("p2p", p2p)
        if p2p and register is False:
            raise TypeError("p2p needs register: the other side asks the registry.")
        if url:
            self._check_own(url)
        hyperty = await self._claimed(name, taken, p2p, url)
        if register is False:
            self.runtime.bus.unregistered.add(hyperty.url)
            return hyperty
        value = {
            "url": hyperty.url,
            "user": self._user(register),
            "descriptor": f"hyperty-catalogue://{self._domain}/.well-known/hyperty/{name}",
            "resources": list(resources),
            "dataSchemes": list(data_schemes),
        }
        try:
            await self._registrations.register(value)
        except SyncError as error:
            await self.end(hyperty)
            raise _failure(error, f'"{name}" is not registered') from None
        return hyperty

    async def find(
        self, user: str, resources: Sequence[str], data_schemes: Sequence[str]
    ) -> list[str]:
        """The addresses of hyperties that can be reached now; see Runtime.find()."""
        check_text("user", user)
        check_texts("resources", resources)
        check_texts("data_schemes", data_schemes)
        is_mail = "://" not in user and "@" in user
        resource = f"/hyperty/idp-identifier/{user}" if is_mail else _user_url(user, self._domain)
        is_legacy = addresses.parse(resource).scheme in LEGACY_SCHEMES
        domain = user.rpartition("@")[2].lower() if is_mail else addresses.parse(resource).home
        criteria: Body = {"resources": list(resources)} if resources else {}
        if data_schemes:
            criteria["dataSchemes"] = list(data_schemes)
        body = {"resource": resource} | ({"criteria": criteria} if criteria else {})
        message = {
            "type": "read",
            "from": f"{self.runtime.url}/registry/",
            "to": user if is_legacy else f"domain://registry.{domain}",
            "body": body,
        }
        try:
            told = await ask_until_answered(self.runtime.bus, message)
        except SyncError as error:
            if error.code == 404 or (error.code == 408 and _is_records(error.value)):
                return []  # nobody, or nobody who can be reached
            raise _failure(error, f"{user} cannot be looked up") from None
        value = told.get("value")
        records = [each for each in (value or {}).values() if isinstance(each, dict)]
        live = [each for each in records if each.get("status") == "live"]
        live.sort(key=lambda each: str(each.get("lastModified") or ""), reverse=True)
        urls = [each.get("hypertyID") or each.get("url") for each in live]
        return [each for each in urls if isinstance(each, str)]

    def listed(self) -> list[dict[str, Any]]:
        """Each: name, url, isRegistered."""
        has = self._registrations.has
        return [
            {"name": each.name, "url": each.url, "isRegistered": has(each.url)}
            for each in self._all.values()
        ]

    def explain(self, address: str, sender: str = "") -> Explanation:
        """What the runtime does about an address, and how a message would get there."""
        check_address("address", address)
        bus, settings = self.runtime.bus, self.runtime.settings
        is_here = bus.has_listener(address)
        is_below = any(addresses.is_under(address, each) for each in _spellings(bus.runtime_url))
        is_ours = is_here or is_below
        is_claimed = (address in self._all or is_below) if is_ours else None
        is_registered = self._registrations.has(address) if is_ours else None
        entry: StubEntry | None = None

        def told(way: str, why: str) -> Explanation:
            stub = (entry.url, entry.status, entry.desc) if entry else ("", "", "")
            return Explanation(address, is_here, is_claimed, is_registered, *stub, way, why)

        if is_here:
            if address in self._all:
                where = "in the registry" if is_registered else "not registered"
                return told("here", f"Claimed at the node, and {where}.")
            if is_below:
                return told("here", "Below this runtime's URL, which leads here anyway.")
            text = "Listened to here, and not claimed at the node: nobody outside reaches it."
            return told("here", text)
        if is_below:
            return told("none", "It is below this runtime's URL, and nobody listens to it.")
        try:
            target = destination(address, settings)
        except NoDestination as error:
            return told("none", str(error))
        entry = self.runtime.resolver.stubs.get(target.key)
        if entry is None:
            return told("node", f"The stub of {target.domain} is loaded with the first message.")
        p2p = self.runtime.p2p
        if p2p is not None:
            way, why = p2p.explain(address, sender or f"{self.runtime.url}/app")
        else:
            way, why = "node", self.why_no_p2p()
        if way != "node":
            return told(way, why)
        if entry.status in ("failed", "deployment-failed"):
            return told("none", f"The stub of {target.domain} is {entry.status}: {entry.desc}")
        through = f"Through the stub of {target.domain}, which is {entry.status}."
        return told("node", f"{through} No channel: {why}")

    def why_no_p2p(self) -> str:
        """Why there are no channels, "" where there may be some."""
        if self.runtime.p2p is not None:
            return ""
        is_off = self.runtime.settings.p2p is None
        install = "aiortc is not installed: pip install 'hyperty-runtime[p2p]'."
        return "the settings have no p2p." if is_off else install

    async def leave(self, hyperty: Hyperty) -> None:
        """It leaves with the runtime: the registry is told."""
        try:
            await self._registrations.unregister(hyperty.url)
        except SyncError as error:
            self.runtime.bus.report("data.not-registered", str(error), None, error)

    async def end(self, hyperty: Hyperty) -> None:
        """The end of one."""
        if self._all.get(hyperty.url) is not hyperty:
            return
        del self._all[hyperty.url]
        self.runtime.bus.unregistered.discard(hyperty.url)
        await self.leave(hyperty)
        await self.runtime.sync_manager.unclaim(hyperty.url)
        hyperty.stop()

    def close(self) -> None:
        """They hear nothing any more."""
        for hyperty in self._all.values():
            hyperty.stop()

    @property
    def _registrations(self) -> Any:
        return self.runtime.sync_manager.registrations

    async def _claimed(
        self, name: str, handlers: Mapping[str, Handler], p2p: bool, url: str
    ) -> Hyperty:
        start = f"hyperty://{self._domain}/"
        own = url or self._kept(name, f"{start}{uuid.uuid4()}")
        try:
            return await self._claim(name, own, handlers, p2p)
        except AnswerError as error:
            if url or error.code != 403:
                raise
        return await self._claim(name, f"{start}{uuid.uuid4()}", handlers, p2p)  # another has it

    async def _claim(
        self, name: str, url: str, handlers: Mapping[str, Handler], p2p: bool
    ) -> Hyperty:
        if url in self._all:
            raise AnswerError({"code": 500}, f"Instance {url} already exist!")
        hyperty = Hyperty(self, name, url, handlers, p2p)
        self._all[url] = hyperty
        try:
            await self.runtime.sync_manager.claim(url)
        except SyncError as error:
            del self._all[url]
            hyperty.stop()
            raise _failure(error, f'"{name}" cannot have the address {url}') from None
        return hyperty

    def _kept(self, name: str, fresh: str) -> str:
        """The address of the last start, or something fresh."""
        storage = self.runtime.storage
        key = f"msgnode.hyperty.{name}.{self._domain}"
        if storage is None:
            return fresh
        try:
            kept = storage.get(key)
            if kept and kept.startswith(f"hyperty://{self._domain}/"):
                return kept
            storage[key] = fresh
        except Exception as error:
            self.runtime.bus.report("storage.failed", f"{key}: {error}", None, error)
        return fresh

    def _user(self, register: bool | str) -> str:
        if isinstance(register, str):
            return _user_url(register, self._domain)
        return self.runtime.user or f"user://{self._domain}/{self.runtime.url.rpartition('/')[2]}"

    def _check_own(self, url: Any) -> None:
        parsed = addresses.parse(url) if isinstance(url, str) else None
        if parsed is None or parsed.scheme != "hyperty" or parsed.home != self._domain:
            raise wrong("url", f"an address hyperty://{self._domain}/…", url)


def _is_records(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, dict) for each in value.values())


def _spellings(runtime_url: str) -> tuple[str, str]:
    return runtime_url, addresses.runtime_twin(runtime_url) or runtime_url


def _user_url(user: str, home: str) -> str:
    """The user URL of a name, an e-mail address, or of what is one."""
    if "://" in user:
        return user
    domain = user.rpartition("@")[2] if "@" in user else home
    return f"user://{domain}/{user}"


def _failure(error: SyncError, what: str) -> AnswerError:
    text = f"{what}: {error}"
    return AnswerError({"code": error.code, "desc": text, "description": text}, text)


# --- arguments ------------------------------------------------------------------------------------


def _handlers(handlers: Any) -> dict[str, Handler]:
    if handlers is None:
        return {}
    if callable(handlers):
        return {"*": handlers}
    if not isinstance(handlers, Mapping):
        shape = "a function, or a mapping of functions by type of message"
        raise wrong("handlers", shape, handlers)
    for kind, handler in handlers.items():
        _check_handler("handlers", kind, handler)
    return dict(handlers)


def _check_handler(name: str, kind: Any, handler: Any) -> None:
    if kind not in TYPES:
        raise wrong(name, f"one of {', '.join(TYPES)}", kind)
    check_function(f"{name} {kind}", handler)
