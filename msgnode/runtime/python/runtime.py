"""A hyperty runtime, wired: its bus, and the way to other domains.

async with Runtime(Settings("example.com")) as runtime:
    await runtime.log_in()
    me = await runtime.hyperty("me", handlers=lambda value, message: value)  # others reach it
    answer = await me.request(address, "hello")
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgnode.core.identity import Identity

from .cards import Card, Cards
from .faults import OnError
from .housekeeping import keep_house, unload
from .hyperties import Explanation, Handlers, Hyperties, Hyperty
from .invitations import Invitations
from .loader import LoadError, OwnStub
from .log_in import IdentityEvent, LogIn
from .message_bus import MessageBus, decisions
from .messages import Message, body_of
from .p2p.peer_to_peer import PeerToPeer
from .p2p.rtc import is_available
from .policy import PolicyEngine, identity_of, policy_handler
from .qos import Qos
from .resolver import Resolver
from .rest_registries import RestRegistries
from .settings import Settings, __version__
from .stub_list import Stub, StubEntry
from .syncher.stored_objects import Storage
from .syncher.sync_manager import SyncManager

if TYPE_CHECKING:
    from .graph.graph_connector import GraphConnector

CLOSE_SECONDS = 3.0


class Runtime:
    """One runtime; needs the running event loop.

    Args:
        settings: its domain, catalogues and limits.
        url: kept by the caller from one start to the next, or made anew.
        on_error: told what went wrong and had nobody else to tell.
        policies: the user's own, for what goes out and comes in.
        storage: texts by key, such as a `shelve` or a `dbm`: keeps contacts, and data objects for
            resume().
        debug: write a line for each decision about a message to stderr.
    """

    def __init__(
        self,
        settings: Settings,
        url: str = "",
        on_error: OnError | None = None,
        policies: PolicyEngine | None = None,
        storage: Storage | None = None,
        debug: bool = False,
    ) -> None:
        _check(settings, debug)
        if debug:
            log_decisions()
        self.settings = settings
        self.url = url or f"runtime://{settings.domain}/{uuid.uuid4()}"
        self.bus = MessageBus(self.url)
        if on_error is not None:
            self.bus.on_error(on_error)
        self.resolver = Resolver(settings, self.bus)
        self.qos = Qos(self.bus, settings.domain)
        if policies is not None:
            handler = policy_handler(policies, self._identify)
            self.bus.pipeline_out.use(handler)
            self.bus.pipeline_in.use(handler)
        self.storage = storage
        self._cards = Cards(settings)
        self.invitations = Invitations(
            self.bus,
            settings.domain,
            self._cards,
            self.card_of,
            settings.catalogues.__contains__,
            self.resolver.loader.catalogue.expect,
        )
        self.sync_manager = SyncManager(self.bus, settings.domain, storage)
        self.p2p: PeerToPeer | None = None
        if settings.p2p is not None and is_available():
            self.p2p = PeerToPeer(settings.p2p, self.resolver, self.qos)
            self.bus.registered_with = self.p2p.registration
        self._log_in = LogIn(self.bus, settings.domain, self._show)
        self.bus.add_listener(f"{self.url}/status", self._told)
        self._hyperties = Hyperties(self)
        self._registries: RestRegistries | None = None
        if settings.registries and self.bus.outside is not None:
            self._registries = RestRegistries(settings, self.bus, self.bus.outside)
            self.bus.outside = self._registries
        self._housekeeping = asyncio.create_task(keep_house(self.resolver))

    async def card_of(self, user: str) -> Card:
        """What the domain of bob@example.org, or of a user URL, asserts of him.

        No code of the domain runs for that. As long as the card is good, the domain's stub is
        loaded only if its code is what the card names.

        Raises:
            CardError: there is none, or it proves nothing; nothing has changed then.
        """
        card = await self._cards.card_of(user)
        if card.digests and card.domain != self.settings.domain:
            self.resolver.loader.catalogue.expect(card.domain, card.digests, card.expires)
        return card

    @property
    def version(self) -> str:
        """The version of this package."""
        return __version__

    @cached_property
    def graph(self) -> GraphConnector:
        """The Graph Connector; it needs `hyperty-runtime[graph]`. Raises ImportError."""
        try:
            from .graph.contacts import Contacts
            from .graph.graph_connector import GraphConnector
        except ModuleNotFoundError as error:
            text = f"{error}: the Graph Connector needs `pip install hyperty-runtime[graph]`."
            raise ImportError(text) from error

        def failed(text: str, error: Exception) -> None:
            self.bus.report("storage.failed", f"{text}: {error}", None, error)

        key = f"msgnode.contacts.{self.settings.domain}"
        return GraphConnector(self.bus, Contacts(key, self.storage, failed))

    async def __aenter__(self) -> Runtime:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def user(self) -> str:
        """The user URL of who is logged in, "" for nobody."""
        return self._log_in.user

    async def log_in(self, identity: Any = None) -> str:
        """The user is there: connect the home domain's stub, with his identity if there is one.

        Args:
            identity: `openid(…)`, `{"accessToken": …}`, `{"idToken": …}`, or
                `{"assertion": …, "idp": …}`; without it nobody logs in.

        Returns:
            "live".

        Raises:
            TypeError: the identity has another shape.
            OpenIdError: nobody logs in.
            LoadError: the stub cannot be loaded, or is not live; the text says why.
            AnswerError: the node does not accept the identity.
        """
        shown = await self._log_in.take(identity)
        state = await self.resolver.log_in(shown)
        if state != "live":
            entry = self.resolver.stubs.get(self.settings.domain)
            why = entry.desc if entry is not None and entry.desc else "it does not say why"
            code = entry.code if entry is not None and entry.code else 503
            raise LoadError(code, f"The stub of {self.settings.domain} is {state}: {why}")
        await self._log_in.accepted()
        if self.p2p is not None:
            await self.p2p.start()
        return state

    async def log_out(self) -> None:
        """The session ends, and what it held; the next message or log_in() opens another."""
        await self._log_in.end()
        self.resolver.identity, self.resolver.is_logged_in = None, False
        entry = self.resolver.stubs.get(self.settings.domain)
        if entry is not None:
            await unload(self.resolver, entry)

    def on_identity(self, listener: Callable[[IdentityEvent], object]) -> Callable[[], None]:
        """Hear of the log-in: IdentityEvent. Returns what ends that."""
        return self._log_in.listen(listener)

    async def _show(self, identity: Any) -> None:
        """Have the home stub show a renewed identity from now on."""
        await self.resolver.log_in(identity)

    def _told(self, message: Message) -> None:
        body = body_of(message)
        home = self.resolver.stubs.get(self.settings.domain)
        is_trying = body.get("value") in ("in-progress", "failed")
        if is_trying and home and body.get("resource") == home.url:
            self._log_in.renew_if_ended()

    async def hyperty(
        self,
        name: str,
        *,
        handlers: Handlers | None = None,
        register: bool | str = True,
        resources: Sequence[str] = (),
        data_schemes: Sequence[str] = (),
        p2p: bool = False,
        url: str = "",
    ) -> Hyperty:
        """A hyperty that others can reach: claimed at the node, registered, and kept so.

        Args:
            name: letters, digits, _, . and -: its address is kept by it.
            handlers: a function of (value, message), or functions by type of message, whose
                results are the answers; they may be coroutine functions.
            register: True, False, or the user to register it for.
            resources: what it offers, such as "chat".
            data_schemes: schemes of its data objects, such as "comm".
            p2p: ask for channels.
            url: an address of one's own.

        Raises:
            TypeError: naming the argument and what it has to be.
            AnswerError: which step failed, and why.
        """
        return await self._hyperties.make(
            name, handlers, register, resources, data_schemes, p2p, url
        )

    async def find(
        self, *, user: str, resources: Sequence[str] = (), data_schemes: Sequence[str] = ()
    ) -> list[str]:
        """The addresses of a user's hyperties that can be reached now.

        Args:
            user: a name, an e-mail address or a user URL.
            resources: what they must offer.
            data_schemes: which schemes they must have.

        Raises:
            TypeError: naming the argument and what it has to be.
            AnswerError: the registry cannot be asked.
        """
        return await self._hyperties.find(user, resources, data_schemes)

    def explain(self, address: str, sender: str = "") -> Explanation:
        """What the runtime does about an address, and how a message would get there."""
        return self._hyperties.explain(address, sender)

    def state(self) -> dict[str, Any]:
        """What there is in this runtime now, as JSON; JavaScript has the same.

        Returns:
            runtime, domain, user, hyperties, routes (a stub each, with the addresses it claims at
            its node), sandboxes, channels, whyNoChannels, errors (the last), counters.
        """
        stubs = list(self.resolver.stubs)
        return {
            "runtime": self.url,
            "domain": self.settings.domain,
            "user": self.user,
            "hyperties": self._hyperties.listed(),
            "routes": [_route(each) for each in stubs],
            "sandboxes": [
                {"name": f"stub {_place(each.stub)} {each.domain}", "components": [each.url]}
                for each in stubs
                if each.stub is not None
            ],
            "channels": [each._asdict() for each in (self.p2p.connections if self.p2p else ())],
            "whyNoChannels": self._hyperties.why_no_p2p(),
            "errors": [dict(each) for each in self.bus.errors],
            "counters": dict(self.bus.counters),
        }

    async def close(self) -> None:
        """Tell hyperties, disconnect the stubs, end the sandboxes. Nothing is left running."""
        self._log_in.stop()
        self._housekeeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._housekeeping
        self.invitations.close()
        await self.qos.close()
        await self._close_hyperties()
        if self._registries is not None:
            await self._registries.close()
        self._hyperties.close()
        self.sync_manager.close()
        if self.p2p is not None:
            await self.p2p.close()
        await asyncio.sleep(0)  # what it says goes out
        await self.resolver.close()
        await self.bus.close()

    def _identify(self, message: Message, context: Mapping[str, str]) -> Identity | None:
        """Who sends: the user who is logged in, or whom the home node has verified."""
        if context["direction"] == "out":
            return identity_of(self.resolver.identity)
        entry = self.resolver.stubs.of_url(context["via"])
        body = body_of(message)
        if entry is None or entry.key != self.settings.domain or not body.get("assertedIdentity"):
            return None
        return identity_of(body.get("identity"))

    async def _close_hyperties(self) -> None:
        sender = f"{self.url}/registry/"
        body = {"method": "close"}
        asked = [
            self.bus.request(
                {"type": "execute", "from": sender, "to": to, "body": body}, CLOSE_SECONDS
            )
            for to in self.bus.listened("hyperty")
        ]
        await asyncio.gather(*asked, return_exceptions=True)


def _place(stub: Stub) -> str:
    return "own" if isinstance(stub, OwnStub) else "process"


def _route(entry: StubEntry) -> dict[str, Any]:
    """A stub, as state() tells of it."""
    return {
        "to": entry.key,
        "domain": entry.domain,
        "stub": entry.url,
        "status": entry.status,
        "desc": entry.desc,
        "version": str(entry.descriptor.version) if entry.descriptor else "",
        "waiting": len(entry.waiting),
        "unanswered": len(entry.open),
        "claims": list(entry.held),
    }


def _check(settings: object, debug: object) -> None:
    if not isinstance(settings, Settings):
        text = f'settings is a Settings, such as Settings("example.com"), not {settings!r:.60}.'
        raise TypeError(text)
    if not isinstance(debug, bool):
        raise TypeError(f"debug is True or False, not {debug!r}.")


def log_decisions() -> None:
    """Write what buses decide about messages to stderr, with the time."""
    decisions.setLevel(logging.DEBUG)
    if not decisions.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(message)s", "%H:%M:%S"))
        decisions.addHandler(handler)
