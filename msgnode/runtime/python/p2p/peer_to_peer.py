"""A runtime's direct connections: who is dialled, who is let in, and which way a message goes.

It stands between the bus and the node's stubs, and follows docs/reference/p2p.md, rows 30-34.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any

from msgnode.core import addresses
from msgnode.runtime.python.listeners import Listening
from msgnode.runtime.python.messages import Message, body_of
from msgnode.runtime.python.qos import Qos
from msgnode.runtime.python.resolver import Resolver

from .link import Way
from .remote_runtime import Connection, KnownRuntimes, RemoteRuntime, Shared
from .senders import (
    NodePath,
    Whereabouts,
    is_for_node,
    is_unregistered,
    runtime_of,
    without_peer,
)
from .set_up import SetUps
from .settings import P2PSettings, requester_stub_of
from .signalling import Invited, SetUpError, Signalling, asked_of, count

MAX_DELIVERING = 100  # answers from stub to stub that wait for it to be known whose they are


class PeerToPeer:
    """The direct connections of one runtime. It takes the resolver's place on the bus."""

    def __init__(self, settings: P2PSettings, resolver: Resolver, qos: Qos | None = None) -> None:
        self._bus = bus = resolver.bus
        self._resolver = resolver
        self.handler = f"{bus.runtime_url}/p2phandler/{settings.handler_id or uuid.uuid4()}"
        self._timers = settings.timers
        self._known = KnownRuntimes(settings.timers)
        self._node = NodePath(bus, resolver, resolver.settings)
        self._signalling = Signalling(bus, self.handler, settings.timers.answer)
        self._whereabouts = Whereabouts(bus)
        self._set_ups = SetUps(settings, self._signalling, self._known, self._new_remote, qos)
        self._delivering = 0
        self._listenings: list[Listening] = [
            bus.add_listener(self.handler, self._signalled),
            self._whereabouts.tell_own(self.registration),
        ]
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False
        bus.outside = self

    @property
    def known(self) -> Mapping[str, RemoteRuntime]:
        """The other runtimes that are known, by runtime URL."""
        return self._known.by_runtime

    @property
    def connections(self) -> list[Connection]:
        """An entry for each other runtime that there is, or was lately, a connection with."""
        return [
            Connection(each.runtime, each.stub, str(each.state), str(each.link.way))
            for each in self.known.values()
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
            await self._signalling.ask("subscribe", f"{runtime}/ua", sm, body)
        except SetUpError as error:
            self._bus.report("p2p.not-announced", f"Nobody can invite this runtime: {error}")

    # --- which way --------------------------------------------------------------------------------

    def send(self, message: Message, size: int, stub: str) -> str:
        """Take a message out; see `Outside` of the MessageBUS."""
        to = message["to"]
        via = self._known.of_via(stub)
        if message["type"] == "response":
            if via is not None:
                via.answer(message, size)
                return via.via
            remote = self._remote_of(to)
            if remote is None or not remote.is_on_channel:
                return self._node.send(message, size, stub)
            remote.send(message, size, is_for_node=True)
            return stub
        is_by_node = is_for_node(message) or is_unregistered(message, self._bus.unregistered)
        remote = None if is_by_node else self._wanted(message)
        now = asyncio.get_running_loop().time()
        handler = remote.handler or remote.runtime if remote is not None else ""
        if remote is None and self._known.has_channel():
            self._node.sent(to, now)
        if remote is None or not remote.is_on_channel or not self._node.is_shared(to, handler):
            return self._node.send(message, size, stub if via is None else "")
        if self._node.take_sent(to, now):
            remote.fence_again(to)
        remote.send(without_peer(message), size)
        return remote.via

    def _wanted(self, message: Message) -> RemoteRuntime | None:
        """The remote runtime that a message is for; one that wants a channel has it dialled."""
        to, sender, body = message["to"], message["from"], body_of(message)
        named = body.get("p2pHandler")
        handler = named if isinstance(named, str) else ""
        remote = self._remote_of(to, sender, handler)
        if body.get("p2p") is True and (remote is None or not remote.is_on_channel):
            self._whereabouts.to_dial(to, sender, handler, self._dial)
        elif remote is None and self._may_be_at_field(to):
            self._whereabouts.renew(to, sender)
        return remote

    def _may_be_at_field(self, to: str) -> bool:
        """Whether somebody may be in a runtime of the field that has dialled."""
        return self._known.was_dialled_by_field(addresses.parse(to).home) and not runtime_of(to)

    def _remote_of(self, address: str, sender: str = "", handler: str = "") -> RemoteRuntime | None:
        if addresses.parse(address).scheme in addresses.RUNTIME_SCHEMES:
            said = handler or self._whereabouts.said_by(sender, address)
            return self._known.of(runtime_of(address), said)
        runtime, told = self._whereabouts.place_of(address, sender)
        remote = self._known.of(runtime, handler or told)
        if remote is not None and remote.is_on_channel:
            self._whereabouts.renew(address, sender)
        return remote

    def _dial(self, runtime: str, handler: str) -> None:
        """Set a connection up with a runtime, unless there is one, or it is no time for that."""
        remote = self._known.to_dial(runtime, handler) or self._new_remote(runtime, handler)
        if remote is not None:
            remote.handler = handler
            self._set_ups.dial(remote)

    def explain(self, address: str, sender: str) -> tuple[str, str]:
        """Which way a message from `sender` to an address would go, and why."""
        message = {"to": address, "from": sender}
        if is_for_node(message):
            return "node", "It is an event, signalling or for a back-end: always through the node."
        if is_unregistered(message, self._bus.unregistered):
            text = "The sender is not registered, so the other side cannot tell where it is."
            return "node", text
        remote = self._remote_of(address, sender)
        if remote is not None and remote.is_on_channel:
            is_in_use = remote.link.way is Way.CHANNEL
            why = f"Its runtime is {remote.runtime}." if is_in_use else "The way changes over."
            return str(remote.link.way), why
        if remote is not None and remote.is_setting_up:
            return "node", "A channel is being set up."
        if remote is not None and remote.desc:
            return "node", f"The last channel or set-up ended: {remote.desc}"
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
                remote = self._known.of_stub(invited.stub)
                self._set_ups.announced(remote, message, invited)
            elif message["type"] == "execute":
                self._asked(message)
            else:
                raise SetUpError(405, "A P2P stub takes create and execute.")
        except SetUpError as error:
            self._signalling.answer(message, error.code, str(error))

    def _asked(self, message: Message) -> None:
        """What stubs of others, or the node itself, ask of ours. Raises SetUpError."""
        method, said = asked_of(message)
        if method == "confirm":
            self._set_ups.confirm(message, said)
        elif method == "disconnect":
            self._hang_up(message, said)
        else:
            remote = self._known.of_stub(message["from"])
            if remote is None:
                raise SetUpError(410, "There is no connection with that stub.")
            self._asked_by(remote, message, method, said)

    def _asked_by(
        self, remote: RemoteRuntime, message: Message, method: Any, said: dict[str, Any]
    ) -> None:
        match method:
            case "fence":
                if not remote.link.fence_asked(str(said.get("epoch")), count(said.get("k"))):
                    raise SetUpError(410, "The epoch is unknown.")
                self._signalling.answer(message, 200)
            case "resume":
                epoch, received = str(said.get("epoch")), count(said.get("received"))
                got = remote.link.resume_asked(epoch, received, said.get("bye"))
                if got is None:
                    raise SetUpError(410, "The epoch is unknown.")
                self._signalling.answer(message, 200, "", {"epoch": epoch, "received": got})
            case "deliver":
                if said.get("type") != "response":
                    raise SetUpError(403, "Only answers to what was asked are delivered so.")
                if self._delivering >= MAX_DELIVERING:
                    raise SetUpError(503, "Too many answers wait for a look-up of their senders.")
                self._deliver(remote, message, said)
            case _:
                known = "confirm, deliver, disconnect, fence and resume"
                raise SetUpError(405, f"A P2P stub knows {known}.")

    def _deliver(self, remote: RemoteRuntime, message: Message, said: dict[str, Any]) -> None:
        """Take an answer in, as soon as it is known whose it is."""

        def again() -> None:
            self._delivering -= 1
            self._deliver(remote, message, said)

        if remote.take(said, again):
            self._signalling.answer(message, 200)
        else:
            self._delivering += 1

    def _hang_up(self, message: Message, said: dict[str, Any]) -> None:
        """The node no longer vouches for a runtime; it expects no answer."""
        to, named = message["to"], said.get("peer")
        if message["from"] != f"domain://msg-node.{addresses.parse(to).home}/p2p":
            raise SetUpError(403, "The node alone orders to hang up.")
        for remote in self._known.all_of(named) if isinstance(named, str) else []:
            if to in (self.handler, remote.via):
                self._bus.counters["p2p.ordered-to-hang-up"] += 1
                remote.forbid()

    # --- life -------------------------------------------------------------------------------------

    def _new_remote(self, runtime: str, handler: str) -> RemoteRuntime | None:
        """A remote runtime that is known from now on; None if too many are."""
        shared = Shared(self._signalling, self._node, self._whereabouts, self._timers)
        remote = RemoteRuntime(shared, runtime, handler)
        if not self._known.add(remote, asyncio.get_running_loop().time()):
            self._bus.counters["p2p.too-many-peers"] += 1
            return None
        remote.on_lost = partial(self._set_ups.lost, remote)
        remote.listening = self._bus.add_listener(remote.via, self._signalled)
        self._await_sweep()
        return remote

    def _await_sweep(self) -> None:
        if self._sweep is None and self.known and not self._is_closed:
            delay = self._timers.forget / 4
            self._sweep = asyncio.get_running_loop().call_later(delay, self._forget_unused)

    def _forget_unused(self) -> None:
        self._sweep = None
        self._known.forget_unused(asyncio.get_running_loop().time())
        self._await_sweep()

    async def close(self) -> None:
        """Leave every channel in good order."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        await self._set_ups.close()
        await self._quiet()
        for remote in self.known.values():
            remote.bye("closing")
        await asyncio.sleep(0)
        closing = [rtc for each in self.known.values() if (rtc := each.stop()) is not None]
        self._whereabouts.close()
        for listening in (*self._listenings, *(each.listening for each in self.known.values())):
            if listening is not None:
                listening.remove()
        await asyncio.gather(*(rtc.closed() for rtc in closing))
        self._bus.outside = self._resolver

    async def _quiet(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while not all(each.link.is_quiet() for each in self.known.values()):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
