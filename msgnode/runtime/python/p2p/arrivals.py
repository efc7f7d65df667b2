"""What channels bring: into the bus, if its sender is in the runtime at the other end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgnode.core import addresses
from msgnode.runtime.python.inbound import is_private_status
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import (
    BadMessage,
    Message,
    answer_to,
    code_of,
    is_answerable,
    recipients,
    without_marks,
)

from .known_peers import plain
from .peer import Peer
from .senders import Forgeries, Whereabouts, names, runtime_of
from .signalling import is_of


class Arrivals:
    """Takes the messages of all channels of one runtime."""

    def __init__(self, bus: MessageBus, whereabouts: Whereabouts) -> None:
        self._bus = bus
        self._whereabouts = whereabouts
        self._forgeries = Forgeries()

    def take(self, peer: Peer, message: Message, then: Callable[[], None] | None = None) -> bool:
        """Take in what came from a peer.

        Args:
            peer: whose channel or stub brought it.
            message: the message.
            then: is called after the look-up, instead of going on with the channel.

        Returns:
            False if its sender has to be looked up first.
        """
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
            record = {} if runtime_of(name) else self._whereabouts.of(name)
            if record is None:
                self._whereabouts.ask(name, then or peer.proceed)
                return False
            if plain(str(record.get("runtime"))) != plain(peer.runtime):
                self._forbid(peer, message, f"{name} is not known to be in {peer.runtime}.")
                return True
        if addresses.is_p2p_stub(message["to"]):
            self._forbid(peer, message, "Signalling goes through the node.")
            return True
        if is_private_status(message["to"], self._bus.runtime_url):
            self._bus.counters["p2p.bad"] += 1
            return True
        if message["type"] == "response":
            if not self._bus.is_expected(message, peer.via):
                self._bus.unclaimed(message)
                return True
            if code_of(message) == 404:
                self._whereabouts.forget(message["from"])
        self._bus.receive(without_marks(message), peer.via)
        return True

    def _forbid(self, peer: Peer, message: Message, text: str) -> None:
        self._bus.report("p2p.forged", f"{peer.runtime} posted as another: {text}")
        if self._forgeries.is_too_many(peer.runtime):
            asyncio.get_running_loop().call_soon(peer.bye, "forbidden")
        elif is_answerable(message) and message.get("id"):
            answer = answer_to(message, 403, text)
            peer.wrap((answer["to"], str(answer["id"])))
            peer.send(answer, 0)
