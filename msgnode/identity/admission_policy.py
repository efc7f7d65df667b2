"""Admission: how much a session must say of itself before it may speak. Pure.

anonymous    anybody speaks; an identity that is given must be good
identified   a message needs an identity: the session's, by login, or one of its own
strict       the session must be logged in, and speaks for that subject only

The mode is that of the domain of the session's runtime URL, else the node's.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from msgnode.core import addresses
from msgnode.core.messages import Message


class Mode(IntEnum):
    """What a runtime must show before it may speak, from nothing to a login."""

    ANONYMOUS = 0
    IDENTIFIED = 1
    STRICT = 2


WORDS = {mode.name.lower(): mode for mode in Mode}


class AdmissionPolicy:
    """The node's mode, and those of single domains of origin."""

    def __init__(self, mode: Mode, domains: Mapping[str, Mode]) -> None:
        self.default = mode
        self.domains = dict(domains)
        self.is_open = not any((mode, *self.domains.values()))
        """Whether nobody has to show anything."""

    def of(self, runtime_url: str) -> Mode:
        """The mode for a session of this runtime."""
        if not self.domains:
            return self.default
        return self.domains.get(addresses.parse(runtime_url).home, self.default)


def needs_no_identity(message: Message, doors: frozenset[str], runtime_url: str) -> bool:
    """Whether a message may be said before anybody knows by whom.

    One to the identity manager may, a handshake between runtimes, and the status of the sender's
    own runtime.

    Args:
        message: the message.
        doors: the addresses of the identity manager.
        runtime_url: that of the session which says it.
    """
    if message.type == "handshake":
        return True
    status = f"{runtime_url}/status"
    own = (status, addresses.runtime_twin(status)) if message.type == "update" else ()
    return all(to.rstrip("/") in doors or to in own for to in message.recipients)


def was_asked_of_peer(message: Message) -> bool:
    """Whether a peer says this because somebody here wanted it: a response, an event of its own.

    The link of the peer lets in no response that nobody has asked for, and hands what its objects
    say to those alone who observe them here.
    """
    if message.is_response:
        return True
    home = addresses.parse(message.sender).home
    return message.type == "update" and all(
        addresses.is_event(to) and addresses.parse(to).home == home for to in message.recipients
    )
