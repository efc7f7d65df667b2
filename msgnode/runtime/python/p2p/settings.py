"""Timers and limits of P2P connections; times are in seconds, sizes in characters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class P2PTimers:
    """How long a P2P connection waits for what, and how much it keeps.

    Attributes:
        answer: for the answer to an invitation.
        set_up: from the deployment of a stub to its open channel.
        quarantine: after a set-up that failed, doubling, before the next one.
        fence: for the answer to a fence, which comes on the channel.
        refence: before a fence that was not answered is sent once more.
        resume: for the answer to a resume.
        ack: that an acknowledgement waits for a message it can ride on.
        ping: of silence before the other side is asked whether it is there.
        dead: of silence after which it is not.
        idle: without a message, after which the channel is closed.
        keep_epochs: epochs that a late resume can still ask for.
        window: messages that are sent and not acknowledged.
        window_size: characters of them.
        held_size: characters that wait for a way.
        inbox: messages taken from the channel that wait to be checked.
        inbox_size: characters of them; the other side sends less before it is told that they came.
        peers: other runtimes that are known at a time.
        forget: without use, after which one is known no longer.
        linger: after the last use of a channel, in which its runtime is known even if others come.
    """

    answer: float = 5.0
    set_up: float = 15.0
    quarantine: float = 30.0
    fence: float = 3.0
    refence: float = 10.0
    resume: float = 5.0
    ack: float = 0.05
    ping: float = 5.0
    dead: float = 12.0
    idle: float = 300.0
    keep_epochs: int = 4
    window: int = 1_000
    window_size: int = 1024 * 1024
    held_size: int = 4 * 1024 * 1024
    inbox: int = 2_000
    inbox_size: int = 4 * 1024 * 1024
    peers: int = 1_000
    forget: float = 600.0
    linger: float = 60.0


@dataclass(frozen=True, slots=True)
class P2PSettings:
    """Direct connections of a runtime to others.

    Attributes:
        ice_servers: as of an RTCPeerConnection, such as `{"urls": "stun:…"}`; none are built in.
        relay_only: show nobody an address of this device; needs a TURN server.
        handler_id: kept by the caller from one start to the next, or made anew.
        field_peers: whether channels to runtimes with the field's stubs are set up, too. On them
            messages may overtake one another or be lost, which is said.
        reserve: whether TURN servers are asked of the domain's QoS broker for each connection.
    """

    ice_servers: tuple[Mapping[str, Any], ...] = ()
    relay_only: bool = False
    handler_id: str = ""
    field_peers: bool = True
    reserve: bool = False
    timers: P2PTimers = field(default_factory=P2PTimers)


def requester_stub_of(domain: str) -> str:
    """Where the catalogue of a domain has the stub that dials its runtimes."""
    return f"hyperty-catalogue://catalogue.{domain}/.well-known/protocolstub/p2p-requester"
