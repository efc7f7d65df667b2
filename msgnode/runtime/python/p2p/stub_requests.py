"""What is asked of our P2P stubs through the node: by the stubs of others, and by the node."""

from __future__ import annotations

from typing import Any

from msgnode.core import addresses
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message

from .arrivals import Arrivals
from .known_peers import KnownPeers
from .peer import Peer
from .set_up import SetUps
from .signalling import SetUpError, Talk, asked_of, count

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
