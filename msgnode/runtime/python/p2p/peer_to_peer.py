"""A runtime's direct connections: who is dialled, who is let in, and which way a message goes.

It stands between the bus and the node's stubs. Rules
- Nobody waits for a set-up: until a channel is in use, and after it, messages go through the node.
- A message that says `p2p: true` has its receiver's runtime dialled; what else goes to the same
  runtime uses the channel then. What has many readers, and all signalling, goes through the node.
- An answer goes the way its request came. One that can do so no longer travels from stub to stub
  (`execute deliver`), because no node expects it.
- Of messages on a channel, `senders.py` tells whose they may be.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Coroutine
from typing import Any

from msgnode.core import addresses
from msgnode.runtime.python.destinations import NoDestination, destination
from msgnode.runtime.python.listeners import Listening
from msgnode.runtime.python.message_bus import Outside
from msgnode.runtime.python.messages import (
    BadMessage,
    Message,
    answer_to,
    body_of,
    code_of,
    is_answerable,
    recipients,
)
from msgnode.runtime.python.resolver import Resolver

from .peer import Peer
from .senders import Forgeries, Whereabouts, is_for_node, names, without_claims, without_peer
from .set_up import SetUps, plain
from .settings import P2PSettings
from .signalling import Invited, SetUpError, Talk, asked_of, count, is_of
from .states import (
    NO_RETURN,
    Event,
    runtime_of_handler,
)

REQUESTER_STUB = "hyperty-catalogue://catalogue.{}/.well-known/protocolstub/p2p-requester"


class PeerToPeer:
    """The direct connections of one runtime. It takes the resolver's place on the bus."""

    def __init__(self, settings: P2PSettings, resolver: Resolver, qos: Any = None) -> None:
        self.settings = settings
        self._bus = bus = resolver.bus
        self.handler = f"{bus.runtime_url}/p2phandler/{settings.handler_id or uuid.uuid4()}"
        self.peers: dict[str, Peer] = {}  # by runtime URL
        self._node: Outside = resolver
        self._resolver = resolver
        self._talk = Talk(self._bus, self.handler, settings.timers.answer)
        self._whereabouts = Whereabouts(self._bus)
        self._set_ups = SetUps(self, settings, self._bus, self._talk, qos)
        self._by_stub: dict[str, Peer] = {}  # signalling address of the other side
        self._by_via: dict[str, Peer] = {}
        self._forgeries = Forgeries()
        self._working: set[asyncio.Task[None]] = set()
        self._listening: list[Listening] = [self._bus.add_listener(self.handler, self._signalled)]
        self._is_closed = False
        self._bus.outside = self

    @property
    def registration(self) -> dict[str, str]:
        """What the registrations of this runtime's hyperties and data objects say besides."""
        home = self._resolver.settings.domain
        return {"p2pHandler": self.handler, "p2pRequester": REQUESTER_STUB.format(home)}

    async def start(self) -> None:
        """Have invitations delivered here; called once the home stub is live."""
        sm = f"domain://msg-node.{self._resolver.settings.domain}/sm"
        runtime = self._bus.runtime_url
        body = {"subscribe": [self.handler], "source": runtime}
        try:
            await self._talk.ask("subscribe", f"{runtime}/ua", sm, body)
        except SetUpError as error:
            self._bus.report("p2p.not-announced", f"Nobody can invite this runtime: {error}")

    # --- which way --------------------------------------------------------------------------------

    def send(self, message: Message, size: int, stub: str) -> str:
        """Take a message out; see `Outside` of the MessageBUS."""
        to = message["to"]
        via = self._by_via.get(stub)
        if message["type"] == "response":
            if via is not None:
                via.wrap((to, str(message["id"])))
                via.send(message, size)
                return via.via
            peer = self._peer_of(to)
            if peer is not None and peer.is_on_channel:
                peer.send(message, size, is_for_node=True)
                return stub
            return self._node.send(message, size, stub)
        peer = None if is_for_node(message) else self._wanted(message)
        if peer is None or not peer.is_on_channel or not self._is_behind_fence(peer, to):
            return self._node.send(message, size, stub if via is None else "")
        peer.send(without_peer(message), size)
        return peer.via

    def _wanted(self, message: Message) -> Peer | None:
        """The peer that a message is for; one that wants a channel has it dialled."""
        to, body = message["to"], body_of(message)
        peer = self._peer_of(to)
        if body.get("p2p") is True and (peer is None or not peer.is_on_channel):
            handler = body.get("p2pHandler")
            if isinstance(handler, str) and body.get("p2pRequester"):
                runtime = runtime_of_handler(handler)
                self._whereabouts.note(to, {"runtime": runtime, "p2pHandler": handler})
            if self._whereabouts.of(to) is None:
                self._whereabouts.ask(to, lambda: self._dial_for(to))
            else:
                self._dial_for(to)
        return peer

    def _peer_of(self, address: str) -> Peer | None:
        parsed = addresses.parse(address)
        if parsed.scheme in addresses.RUNTIME_SCHEMES:
            head = f"{parsed.domain}/{parsed.path.strip('/').split('/', 1)[0]}"
            return self.peers.get(f"runtime://{head}")
        record = self._whereabouts.of(address)
        runtime = record.get("runtime") if record else None
        return self.peers.get(plain(runtime)) if isinstance(runtime, str) else None

    def _is_behind_fence(self, peer: Peer, to: str) -> bool:
        """Whether the node path of an address is that of the signalling, which the fence takes."""
        settings = self._resolver.settings
        try:
            return destination(to, settings).key == destination(peer.handler, settings).key
        except NoDestination:
            return False

    def _dial_for(self, address: str) -> None:
        record = self._whereabouts.of(address) or {}
        handler = record.get("p2pHandler")
        runtime = runtime_of_handler(handler) if isinstance(handler, str) else ""
        named = record.get("runtime")
        if not runtime or (isinstance(named, str) and plain(named) != plain(runtime)):
            return
        if plain(runtime) != plain(self._bus.runtime_url):
            peer = self.peer(runtime, str(handler))
            peer.handler = str(handler)
            self._set_ups.dial(peer)

    # --- signalling -------------------------------------------------------------------------------

    def _signalled(self, message: Message) -> None:
        """What comes to our handler or to a requester of ours; all of it through the node."""
        talk = self._talk
        if message["type"] == "response":
            return
        try:
            if message["type"] == "create" and message["to"] == self.handler:
                self._set_ups.invited(message, Invited(message))
            elif message["type"] == "create":
                invited = Invited(message)
                peer = self._by_stub.get(invited.stub)
                self._set_ups.announced(peer, message, invited)
            elif message["type"] == "execute":
                self._executed(message)
            else:
                raise SetUpError(405, "A P2P stub takes create and execute.")
        except SetUpError as error:
            talk.answer(message, error.code, str(error))

    def _executed(self, message: Message) -> None:
        method, said = asked_of(message)
        if method == "confirm":
            self._set_ups.confirm(message, said)
            return
        peer = self._by_stub.get(message["from"])
        if peer is None:
            raise SetUpError(410, "There is no connection with that stub.")
        match method:
            case "fence":
                if not peer.link.fence_asked(str(said.get("epoch")), count(said.get("k"))):
                    raise SetUpError(410, "The epoch is unknown.")
                self._talk.answer(message, 200)
            case "resume":
                got = peer.link.resume_asked(str(said.get("epoch")), count(said.get("received")))
                if got is None:
                    raise SetUpError(410, "The epoch is unknown.")
                self._talk.answer(message, 200, "", {"epoch": said["epoch"], "received": got})
            case "deliver":
                if said.get("type") != "response" or not self.take(peer, said):
                    raise SetUpError(403, "Only answers to what was asked are delivered so.")
                self._talk.answer(message, 200)
            case _:
                raise SetUpError(405, "A P2P stub knows confirm, deliver, fence and resume.")

    # --- what peers need of us --------------------------------------------------------------------

    def through_node(self, peer: Peer, message: Message) -> None:
        """Send a message through the node, one that was meant for the channel as well."""
        key = (message["to"], str(message.get("id")))
        if message["type"] == "response" and key in peer.wraps:
            body = {"method": "deliver", "params": [message]}
            self._bus.post_message(
                {"type": "execute", "from": peer.own, "to": peer.theirs, "body": body}
            )
        else:
            self._bus.goes_through(message, self._node.send(message, 0, ""))

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
        try:
            is_one = isinstance(message.get("to"), str) and len(recipients(message)) == 1
        except BadMessage:
            is_one = False
        if not is_one:
            self._bus.counters["p2p.bad"] += 1
            return True
        for name in names(message):
            if is_of(name, peer.runtime):
                continue
            record = self._whereabouts.of(name)
            if record is None:
                self._whereabouts.ask(name, peer.proceed)
                return False
            if plain(str(record.get("runtime"))) != plain(peer.runtime):
                self._forbid(peer, message, f"{name} is not known to be in {peer.runtime}.")
                return True
        if addresses.is_p2p_stub(message["to"]):
            self._forbid(peer, message, "Signalling goes through the node.")
            return True
        if message["type"] == "response" and code_of(message) == 404:
            self._whereabouts.forget(message["from"])
        self._bus.receive(without_claims(message), peer.via)
        return True

    def _forbid(self, peer: Peer, message: Message, text: str) -> None:
        self._bus.report("p2p.forged", f"{peer.runtime} posted as another: {text}")
        if self._forgeries.is_too_many(peer.runtime):
            asyncio.get_running_loop().call_soon(peer.bye, "forbidden")
        elif is_answerable(message) and message.get("id"):
            answer = answer_to(message, 403, text)
            peer.wrap((answer["to"], str(answer["id"])))
            peer.send(answer, 0)

    def refuse(self, message: Message, code: int, text: str) -> None:
        """Tell a sender that his message does not go out."""
        self._bus.refuse(message, code, text)

    def tell_status(self, peer: Peer, desc: str) -> None:
        """Tell the runtime of a change of the peer's state."""
        stub = peer.via if peer.is_requester else self.handler
        body = {"value": str(peer.state), "resource": peer.runtime}
        body |= {"desc": desc} if desc else {}
        self._bus.tell({"type": "update", "from": stub, "to": f"{stub}/status", "body": body})
        runtime = self._bus.runtime_url
        told = {"type": "update", "from": runtime, "to": f"{runtime}/status"}
        self._bus.tell({**told, "body": {**body, "resource": stub, "peer": peer.runtime}})

    def lost(self, peer: Peer, event: Event) -> None:
        """Dial a lost connection again, unless that is of no use."""
        if peer.is_requester and event not in NO_RETURN and not self._is_closed:
            self.spawn(self._redial(peer))

    async def _redial(self, peer: Peer) -> None:
        delay = peer.redials.next(asyncio.get_running_loop().time(), random.random())  # noqa: S311
        if delay is None:
            peer.enter(Event.EXHAUSTED)
            return
        await asyncio.sleep(delay)
        async with asyncio.timeout(self.settings.timers.resume + 1.0):
            while peer.is_on_channel:  # noqa: ASYNC110 (settled within the time of a resume)
                await asyncio.sleep(0.1)
        self._set_ups.dial(peer)

    # --- what set-ups need of us ------------------------------------------------------------------

    def peer(self, runtime: str, handler: str) -> Peer:
        """The peer of a runtime, a new one if it is not known."""
        peer = self.peers.get(plain(runtime))
        if peer is None:
            peer = Peer(self, runtime, handler, self.settings.timers)
            self.peers[plain(runtime)] = peer
            self._by_via[peer.via] = peer
        return peer

    def signals(self, peer: Peer, stub: str) -> None:
        """A peer's connection is signalled with this stub."""
        self._by_stub[stub] = peer

    def listen(self, stub: str) -> None:
        """Listen to a stub URL of ours."""
        self._listening.append(self._bus.add_listener(stub, self._signalled))

    def is_over(self) -> bool:
        """Whether the runtime closes."""
        return self._is_closed

    # --- life -------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Leave every channel in good order."""
        self._is_closed = True
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
        for listening in self._listening:
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
