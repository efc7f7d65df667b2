"""Admission: how a session must identify itself before it may speak. Pure.

anonymous    anybody may speak; an identity that is given must be valid
identified   a message needs an identity: the session's, by login, or one of its own
strict       the session must be logged in, and speaks for that subject only

The mode is that of the domain of the session's runtime URL, else for a visitor that of `*`, else
the node's. For a domain, or for `*`, it may also be

refused      its runtimes get no session; this does not affect its node, if that is a peer
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum

import msgspec

from msgnode.bus.ports import Listener
from msgnode.core import addresses
from msgnode.core.errors import Forbidden
from msgnode.core.messages import Message

_STUBS = "/protostub/"


class Mode(IntEnum):
    """What a runtime must prove before it may speak, from nothing to a login."""

    ANONYMOUS = 0
    IDENTIFIED = 1
    STRICT = 2


WORDS = {mode.name.lower(): mode for mode in Mode}
REFUSED = "refused"
OTHERS = "*"
"""Every domain that is neither the node's nor named."""


class AdmissionPolicy:
    """The node's mode, and those of single domains.

    Args:
        mode: the node's mode.
        domains: the modes of other domains and of OTHERS.
        home: the node's domain.
        refused: domains, or OTHERS, whose runtimes get no session.
    """

    def __init__(
        self,
        mode: Mode,
        domains: Mapping[str, Mode],
        home: str = "",
        refused: Collection[str] = (),
    ) -> None:
        self.default = mode
        self.domains = dict(domains)
        self.is_open = not any((mode, *self.domains.values()))
        """Whether no identity is required anywhere."""
        self._others = self.domains.pop(OTHERS, mode)
        self._home = home
        self._refused = frozenset(refused)

    def of(self, runtime_url: str) -> Mode:
        """The mode for a session of a runtime."""
        if not self.domains and self._others is self.default:
            return self.default
        domain = addresses.parse(runtime_url).home
        is_visitor = bool(domain) and domain != self._home
        return self.domains.get(domain, self._others if is_visitor else self.default)

    def refuses(self, runtime_url: str) -> bool:
        """Whether a runtime of another domain gets no session."""
        if not self._refused:
            return False
        domain = addresses.parse(runtime_url).home
        return domain in self._refused or (OTHERS in self._refused and domain not in self.domains)


def read(mode: str, domains: Mapping[str, str], home: str) -> AdmissionPolicy:
    """The policy of the settings.

    Args:
        mode: ADMISSION.
        domains: ADMISSION_DOMAINS.
        home: the node's domain.
    """
    said = {name.lower(): word for name, word in domains.items()}
    modes = {name: WORDS[word] for name, word in said.items() if word != REFUSED}
    return AdmissionPolicy(WORDS[mode], modes, home, [name for name in said if name not in modes])


def needs_no_identity(message: Message, managers: frozenset[str], runtime_url: str) -> bool:
    """Whether a message may be sent without an identity.

    That is a message to the identity manager, a handshake between runtimes, and the status of the
    sender's own runtime.

    Args:
        message: the message.
        managers: the addresses of the identity manager.
        runtime_url: the runtime URL of the sending session.
    """
    if message.type == "handshake":
        return True
    status = f"{runtime_url}/status"
    own = (status, addresses.runtime_twin(status)) if message.type == "update" else ()
    return all(to.rstrip("/") in managers or to in own for to in message.recipients)


def was_asked_of_peer(message: Message) -> bool:
    """Whether a message of a peer was requested here: a response, or an event of its objects.

    The peer's link admits only responses that were asked for, and delivers what its objects publish
    only to those who observe them here.
    """
    if message.is_response:
        return True
    home = addresses.parse(message.sender).home
    return message.type == "update" and all(
        addresses.is_event(to) and addresses.parse(to).home == home for to in message.recipients
    )


def check_via(message: Message, session: Listener) -> None:
    """Check in strict mode that a session URL in `via` is this session's (stubs add theirs).

    Raises:
        Forbidden: it is another's.
    """
    via = message.identity_fields.via
    text = msgspec.json.decode(via) if via else None
    if not isinstance(text, str):
        return
    place = addresses.parse(text)
    if place.scheme not in addresses.RUNTIME_SCHEMES or place.path.startswith(_STUBS):
        return  # a stub's own mark
    own = session.runtime_url
    if text not in (own, f"{own}/{session.token.decode()}"):
        raise Forbidden("`via` is not the URL of this session.")
