"""A runtime's direct connections: who is dialled, who is let in, and which way a message goes.

It stands between the bus and the node's stubs. Rules
- Nobody waits for a set-up: until a channel is in use, and after it, messages go through the node.
- A message that says `p2p: true` has its receiver's runtime dialled; what else goes to the same
  runtime uses the channel then. What has many readers, and all signalling, goes through the node.
- Where a receiver's runtime can be dialled its registration says; of an address below a runtime's
  URL that runtime itself, at `<runtime URL>/p2phandler`.
- An answer goes the way its request came. One that can do so no longer travels from stub to stub
  (`execute deliver`), because no node expects it.
- Of messages on a channel, `senders.py` tells whose they may be.
- Other runtimes are forgotten when they were not used for a while (`known_peers.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

from msgnode.core import addresses
from msgnode.runtime.python.destinations import NoDestination, destination
from msgnode.runtime.python.listeners import Listening
from msgnode.runtime.python.message_bus import MessageBus, Outside
from msgnode.runtime.python.messages import Message, body_of, code_of
from msgnode.runtime.python.qos import Qos
from msgnode.runtime.python.resolver import Resolver
from msgnode.runtime.python.settings import Settings

from .frames import content_of
from .link import Way
from .remote_runtime import Connection, KnownPeers, Peer, StubTaken, plain
from .senders import (
    NO_BYTES,
    Arrivals,
    Whereabouts,
    is_for_node,
    runtime_of,
    without_bytes,
    without_peer,
)
from .set_up import Redialling, SetUps
from .settings import P2PSettings, requester_stub_of
from .signalling import Invited, SetUpError, Talk, asked_of, count
from .states import Event, State, runtime_of_handler


class PeerToPeer:
    """The direct connections of one runtime. It takes the resolver's place on the bus."""

    def __init__(self, settings: P2PSettings, resolver: Resolver, qos: Qos | None = None) -> None:
        self.settings = settings
        self._bus = bus = resolver.bus
        self.handler = f"{bus.runtime_url}/p2phandler/{settings.handler_id or uuid.uuid4()}"
        self._known = KnownPeers(settings.timers, self._forgotten)
        self._node: Outside = resolver
        self._path = NodePath(resolver.settings)
        self._resolver = resolver
        self._talk = Talk(self._bus, self.handler, settings.timers.answer)
        self._whereabouts = Whereabouts(self._bus)
        self._set_ups = SetUps(self, settings, self._bus, self._talk, qos)
        self._redialling = Redialling(self._redial)
        self._arrivals = Arrivals(bus, self._whereabouts)
        self._requests = StubRequests(bus, self._talk, self._known, self._set_ups, self._arrivals)
        self._working: set[asyncio.Task[None]] = set()
        self._listenings: list[Listening] = [
            self._bus.add_listener(self.handler, self._signalled),
            self._whereabouts.tell_own(self.registration),
        ]
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._bus.outside = self

    @property
    def peers(self) -> Mapping[str, Peer]:
        """The other runtimes that are known, by runtime URL."""
        return self._known.by_runtime

    @property
    def connections(self) -> list[Connection]:
        """An entry for each other runtime that there is, or was lately, a connection with."""
        return [
            Connection(each.runtime, self._stub_of(each), str(each.state), str(each.link.way))
            for each in self.peers.values()
        ]

    @property
    def registration(self) -> dict[str, str]:
        """What the registrations of this runtime's hyperties and data objects say besides."""
        domain = self._resolver.settings.domain
        return {"p2pHandler": self.handler, "p2pRequester": requester_stub_of(domain)}

    async def start(self) -> None:
        """Have invitations delivered here; called once the home stub is live."""
        sm = f"domain://msg-node.{self._resolver.settings.domain}/sm"
        runtime = self._bus.runtime_url
        body = {"resources": [self.handler]}
        try:
            await self._talk.ask("subscribe", f"{runtime}/ua", sm, body)
        except SetUpError as error:
            self._bus.report("p2p.not-announced", f"Nobody can invite this runtime: {error}")

    # --- which way --------------------------------------------------------------------------------

    def send(self, message: Message, size: int, stub: str) -> str:
        """Take a message out; see `Outside` of the MessageBUS."""
        to = message["to"]
        via = self._known.of_via(stub)
        if message["type"] == "response":
            if via is not None:
                via.wrap((to, str(message["id"])))
                via.send(message, size)
                return via.via
            peer = self._peer_of(to)
            if peer is not None and peer.is_on_channel:
                peer.send(message, size, is_for_node=True)
                return stub
            return self._to_node(message, size, stub)
        peer = None if is_for_node(message) else self._wanted(message)
        now = asyncio.get_running_loop().time()
        signalling = peer.handler or peer.runtime if peer is not None else ""
        if peer is None or not peer.is_on_channel or not self._path.is_shared(to, signalling):
            if peer is None and self._known.has_channel():
                self._path.sent(to, now)
            return self._to_node(message, size, stub if via is None else "")
        if self._path.take(to, now):
            peer.fence_again(to)
        peer.send(without_peer(message), size)
        return peer.via

    def _to_node(self, message: Message, size: int, stub: str) -> str:
        if content_of(message) is None:
            return self._node.send(message, size, stub)
        if message["type"] == "response":
            return self._node.send(without_bytes(message), 0, stub)
        self._bus.refuse(message, 503, NO_BYTES)
        return stub

    def _wanted(self, message: Message) -> Peer | None:
        """The peer that a message is for; one that wants a channel has it dialled."""
        to, sender, body = message["to"], message["from"], body_of(message)
        named = body.get("p2pHandler")
        handler = named if isinstance(named, str) else ""
        peer = self._peer_of(to, sender, handler)
        if body.get("p2p") is True and (peer is None or not peer.is_on_channel):
            if handler:
                self._whereabouts.say(sender, to, runtime_of_handler(handler), handler)
            if self._whereabouts.of(to, sender) is None:
                self._whereabouts.ask(to, lambda: self._dial_for(to, sender))
            else:
                self._dial_for(to, sender)
        return peer

    def _peer_of(self, address: str, sender: str = "", handler: str = "") -> Peer | None:
        if addresses.parse(address).scheme in addresses.RUNTIME_SCHEMES:
            said = handler or self._whereabouts.said_by(sender, address)
            return self._known.of(runtime_of(address), said)
        runtime, told = self._whereabouts.place_of(address, sender)
        peer = self._known.of(runtime, handler or told)
        if peer is not None and peer.is_on_channel:
            self._whereabouts.renew(address, sender)
        return peer

    def _dial_for(self, address: str, sender: str) -> None:
        record = self._whereabouts.of(address, sender) or {}
        handler = record.get("p2pHandler")
        runtime = runtime_of_handler(handler) if isinstance(handler, str) else ""
        named = record.get("runtime")
        if not runtime or (isinstance(named, str) and plain(named) != plain(runtime)):
            return
        if plain(runtime) != plain(self._bus.runtime_url):
            peer = self._known.to_dial(runtime, str(handler))
            peer = peer or self._new_peer(runtime, str(handler))
            if peer is not None:
                peer.handler = str(handler)
                self._set_ups.dial(peer)

    def explain(self, address: str, sender: str) -> tuple[str, str]:
        """Which way a message from `sender` to an address would go, and why."""
        if is_for_node({"to": address, "from": sender}):
            return "node", "It is an event, signalling or for a back-end: always through the node."
        peer = self._peer_of(address, sender)
        if peer is not None and peer.is_on_channel:
            is_in_use = peer.link.way is Way.CHANNEL
            why = f"Its runtime is {peer.runtime}." if is_in_use else "The way changes over."
            return str(peer.link.way), why
        if peer is not None and peer.state in (State.CREATED, State.IN_PROGRESS):
            return "node", "A channel is being set up."
        if peer is not None and peer.desc:
            return "node", f"The last channel or set-up ended: {peer.desc}"
        record = self._whereabouts.of(address, sender)
        if record is None:
            return "node", "Nobody has asked for a channel: send a message with p2p: true."
        if not record.get("p2pHandler"):
            text = "Neither its registration nor its runtime names a P2P handler to dial."
            return "node", text
        return "node", "It has not been dialled lately: send a message with p2p: true."

    # --- signalling -------------------------------------------------------------------------------

    def _signalled(self, message: Message) -> None:
        """What comes to our handler or to a requester of ours; all of it through the node."""
        if message["type"] == "response" or "via" not in body_of(message):
            return  # the latter was said in this runtime
        try:
            if message["type"] == "create" and message["to"] == self.handler:
                self._set_ups.invited(message, Invited(message))
            elif message["type"] == "create":
                invited = Invited(message)
                peer = self._known.of_stub(invited.stub)
                self._set_ups.announced(peer, message, invited)
            elif message["type"] == "execute":
                self._requests.take(message)
            else:
                raise SetUpError(405, "A P2P stub takes create and execute.")
        except SetUpError as error:
            self._talk.answer(message, error.code, str(error))

    # --- what peers need of us --------------------------------------------------------------------

    def through_node(self, peer: Peer, message: Message) -> None:
        """Send a message through the node, one that was meant for the channel as well."""
        key = (message["to"], str(message.get("id")))
        if message["type"] == "response" and key in peer.wraps and not peer.is_field:
            del peer.wraps[key]
            answer = message if content_of(message) is None else without_bytes(message)
            body = {"method": "deliver", "params": [answer]}
            said = {"type": "execute", "from": peer.own, "to": peer.theirs, "body": body}
            self._bus.post_message(said, partial(self._delivered, message))
        else:
            self._bus.goes_through(message, self._to_node(message, 0, ""))

    def _delivered(self, message: Message, answer: Message) -> None:
        if (code := code_of(answer)) >= 300:  # noqa: PLR2004
            text = f"An answer to {message['to']} was not delivered: {code}"
            self._bus.report("p2p.not-delivered", text, message)

    def ask(self, peer: Peer, method: str, params: dict[str, Any]) -> None:
        """Ask the other side's stub through the node."""

        def take(answer: Message) -> None:
            value = body_of(answer).get("value")
            received = value.get("received") if isinstance(value, dict) else None
            is_good = code_of(answer) == 200
            peer.answered(method, params, count(received) if is_good else None)

        body = {"method": method, "params": [params]}
        message = {"type": "execute", "from": peer.own, "to": peer.theirs, "body": body}
        self._bus.post_message(message, take, self.settings.timers.resume)

    def take(self, peer: Peer, message: Message) -> bool:
        """Take in what came from a peer; False if its sender has to be looked up first."""
        return self._arrivals.take(peer, message)

    def refuse(self, message: Message, code: int, text: str) -> None:
        """Tell a sender that his message does not go out."""
        self._bus.refuse(message, code, text)

    def is_awaited(self, message: Message) -> bool:
        """Whether somebody here waits for the answer to a message."""
        return message["type"] != "response" and self._bus.is_awaited(message)

    def tell_status(self, peer: Peer, desc: str) -> None:
        """Tell the runtime of a change of the peer's state."""
        stub = self._stub_of(peer)
        body = {"value": str(peer.state), "resource": peer.runtime} | (
            {"desc": desc} if desc else {}
        )
        self._bus.tell({"type": "update", "from": stub, "to": f"{stub}/status", "body": body})
        runtime = self._bus.runtime_url
        told = {"type": "update", "from": runtime, "to": f"{runtime}/status"}
        self._bus.tell({**told, "body": {**body, "resource": stub, "peer": peer.runtime}})

    def _stub_of(self, peer: Peer) -> str:
        return peer.via if peer.is_requester else self.handler

    def lost(self, peer: Peer, event: Event) -> None:
        """A live connection has ended."""
        self._redialling.lost(peer, event)

    def failed(self, peer: Peer, until: float, code: int) -> None:
        """A set-up has failed, or is not begun: its runtime is left alone until then."""
        self._redialling.failed(peer, until, code)

    def _redial(self, peer: Peer) -> None:
        """Dial a lost one again, unless another process would answer, which has its handler now."""
        last = self._known.of(peer.runtime)
        if last is peer or last is None or last.handler != peer.handler:
            self._set_ups.dial(peer)

    # --- what set-ups need of us ------------------------------------------------------------------

    def peer(self, runtime: str, handler: str, instance: str = "") -> Peer | None:
        """The peer of a runtime, a new one if it is not known; None if there are too many."""
        peer = self._known.instance(runtime, instance, handler)
        return peer or self._new_peer(runtime, handler)

    def of(self, runtime: str, handler: str) -> Peer | None:
        """The peer that has this handler."""
        return self._known.of(runtime, handler)

    def _new_peer(self, runtime: str, handler: str) -> Peer | None:
        peer = Peer(self, runtime, handler, self.settings.timers)
        if not self._known.add(peer, asyncio.get_running_loop().time()):
            self._bus.counters["p2p.too-many-peers"] += 1
            return None
        self._await_sweep()
        return peer

    def signals(self, peer: Peer, stub: str) -> None:
        """A peer's connection is signalled with this stub. Raises SetUpError."""
        try:
            self._known.signals(peer, stub)
        except StubTaken as error:
            raise SetUpError(403, str(error)) from None

    async def claim(self, peer: Peer) -> None:
        """Have what is sent to a requester of ours delivered here. Raises SetUpError."""
        if peer.listening is None:
            await self._talk.claim(peer.via)
            peer.listening = self._bus.add_listener(peer.via, self._signalled)

    def is_over(self) -> bool:
        """Whether the runtime closes."""
        return self._is_closed

    # --- life -------------------------------------------------------------------------------------

    def _await_sweep(self) -> None:
        if self._sweep is None and self.peers and not self._is_closed:
            delay = self.settings.timers.forget / 4
            self._sweep = asyncio.get_running_loop().call_later(delay, self._forget_unused)

    def _forget_unused(self) -> None:
        self._sweep = None
        self._known.forget_unused(asyncio.get_running_loop().time())
        self._await_sweep()

    def _forgotten(self, peer: Peer) -> None:
        """Nothing is left of a peer."""
        peer.enter(Event.FORGOTTEN)
        peer.stop()
        if peer.listening is not None:
            peer.listening.remove()
            self._talk.unclaim(peer.via)

    async def close(self) -> None:
        """Leave every channel in good order."""
        self._is_closed = True
        self._redialling.close()
        if self._sweep is not None:
            self._sweep.cancel()
        await self._quiet()
        for peer in self.peers.values():
            peer.bye("closing")
        await asyncio.sleep(0)
        for task in list(self._working):
            task.cancel()
        if self._working:
            await asyncio.wait(self._working)
        closing = [rtc for peer in self.peers.values() if (rtc := peer.stop()) is not None]
        self._whereabouts.close()
        for listening in (*self._listenings, *(peer.listening for peer in self.peers.values())):
            if listening is not None:
                listening.remove()
        await asyncio.gather(*(rtc.closed() for rtc in closing))
        self._bus.outside = self._node

    async def _quiet(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while not all(each.link.is_quiet() for each in self.peers.values()):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the runtime."""
        task = asyncio.get_running_loop().create_task(work)
        self._working.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._bus.report("p2p.failed", f"A P2P set-up broke: {error!r}", error=error)


# The way through the node, which nothing on a channel may overtake.
#
# A fence of the channel takes the way of the signalling, so only what is for the same node can be
# behind it. What went to an address of which nobody knew that it is at a peer may still be on that
# way when that is known: then another fence is needed. After SECONDS it has arrived.


SECONDS = 60.0
MOST = 1_000
"""Addresses that are remembered; of more than that, those sent to last."""


class NodePath:
    """What one runtime sends through its node."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sent_at: OrderedDict[str, float] = OrderedDict()

    def is_shared(self, to: str, signalling: str) -> bool:
        """Whether what is sent to an address goes the way of the signalling to a peer."""
        try:
            key = destination(signalling, self._settings).key
            return destination(to, self._settings).key == key
        except NoDestination:
            return False

    def sent(self, to: str, now: float) -> None:
        """A message went there through the node; `now` is of the monotonic clock."""
        self._sent_at[to] = now
        self._sent_at.move_to_end(to)
        if len(self._sent_at) > MOST:
            self._sent_at.popitem(last=False)

    def take(self, to: str, now: float) -> bool:
        """Whether one may still be on the way there; only the first who asks is told so."""
        at = self._sent_at.pop(to, None)
        return at is not None and now - at < SECONDS


# What is asked of our P2P stubs through the node: by the stubs of others, and by the node.


MAX_DELIVERING = 100  # answers that wait for it to be known whose they are


class StubRequests:
    """Does what an `execute` asks: confirm, deliver, fence, resume; disconnect."""

    def __init__(
        self, bus: MessageBus, talk: Talk, known: KnownPeers, set_ups: SetUps, arrivals: Arrivals
    ) -> None:
        self._bus = bus
        self._talk = talk
        self._known = known
        self._set_ups = set_ups
        self._arrivals = arrivals
        self._delivering = 0

    def take(self, message: Message) -> None:
        """Do it, and answer. Raises SetUpError."""
        method, said = asked_of(message)
        if method == "confirm":
            self._set_ups.confirm(message, said)
        elif method == "disconnect":
            self._hang_up(message, said)
        else:
            peer = self._known.of_stub(message["from"])
            if peer is None:
                raise SetUpError(410, "There is no connection with that stub.")
            self._of_peer(peer, message, method, said)

    def _of_peer(self, peer: Peer, message: Message, method: Any, said: dict[str, Any]) -> None:
        match method:
            case "fence":
                if not peer.link.fence_asked(str(said.get("epoch")), count(said.get("k"))):
                    raise SetUpError(410, "The epoch is unknown.")
                self._talk.answer(message, 200)
            case "resume":
                epoch, received = str(said.get("epoch")), count(said.get("received"))
                got = peer.link.resume_asked(epoch, received, said.get("bye"))
                if got is None:
                    raise SetUpError(410, "The epoch is unknown.")
                self._talk.answer(message, 200, "", {"epoch": epoch, "received": got})
            case "deliver":
                if said.get("type") != "response":
                    raise SetUpError(403, "Only answers to what was asked are delivered so.")
                if self._delivering >= MAX_DELIVERING:
                    raise SetUpError(503, "Too many answers wait for a look-up of their senders.")
                self._deliver(peer, message, said)
            case _:
                known = "confirm, deliver, disconnect, fence and resume"
                raise SetUpError(405, f"A P2P stub knows {known}.")

    def _deliver(self, peer: Peer, message: Message, said: dict[str, Any]) -> None:
        """Take an answer in, as soon as it is known whose it is."""

        def again() -> None:
            self._delivering -= 1
            self._deliver(peer, message, said)

        if self._arrivals.take(peer, said, again):
            self._talk.answer(message, 200)
        else:
            self._delivering += 1

    def _hang_up(self, message: Message, said: dict[str, Any]) -> None:
        """The node no longer vouches for a peer; it expects no answer."""
        to, named = message["to"], said.get("peer")
        if message["from"] != f"domain://msg-node.{addresses.parse(to).home}/p2p":
            raise SetUpError(403, "The node alone orders to hang up.")
        for peer in self._known.all_of(named) if isinstance(named, str) else []:
            if to in (self._talk.handler, peer.via):
                self._bus.counters["p2p.ordered-to-hang-up"] += 1
                peer.forbid()
