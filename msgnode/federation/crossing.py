"""Decides which messages may pass between a peer and this node, and in what form. Pure.

Outbound: messages from addresses of this domain, or of none; nothing is relayed for another domain,
so that no ring of nodes can form. The node's marks (`auth`, `assertedIdentity`) are removed. Over a
link the other node is told whose identity this one has verified, and decides whether it trusts it.

Inbound: a peer speaks for its own domain only, to what this node has and to nobody beyond. It
reaches no component that controls the node; it may read the domain registry as far as policies
allow. Its stub's own route (`via`) is removed, because it can contain a token.
"""

from __future__ import annotations

import msgspec

from msgnode.core import addresses, messages
from msgnode.core.envelope import EMPTY, RAW_FIELDS
from msgnode.core.identity import Identity
from msgnode.core.messages import Message

NODE_ISSUER = "node:"
"""Begins the issuer of an identity that the node of another domain vouches for."""
MAX_SAID = 2_000
"""Bytes that a node may say of one identity."""
_MARKS = ("auth", "assertedIdentity")
_encode = msgspec.json.Encoder().encode


def outgoing_fault(message: Message, own: str) -> str:
    """Why a message is not sent to a peer, "" if it is.

    Args:
        message: a message of a session here.
        own: this node's domain.
    """
    if addresses.parse(message.sender).home in ("", own):
        return ""
    return f"{message.sender} is not of this domain, and nothing is passed on between domains"


def outgoing(message: Message, by_link: bool = False) -> bytes:
    """A message in the form for a peer: for its stub, or `by_link`, with whose identity it is."""
    if message.is_unmarked:
        return message.frame
    if (frame := message.unmarked()) is not None:
        return frame
    return _without(message, _marks(message, by_link))


def incoming(message: Message, is_trusted: bool = False) -> Message:
    """A message of a peer as it is carried here.

    Args:
        message: the message.
        is_trusted: whether what it says of the sender's identity is kept, for `vouched_for`.
    """
    if message.is_unmarked and message.identity_fields.via is EMPTY:
        return message
    if not is_trusted:
        message = message.said_by_nobody() or message
    frame = _without(message, (*_marks(message, is_trusted), "via"))
    return message if frame is message.frame else messages.parse(frame)


def _marks(message: Message, says_who: bool) -> tuple[str, ...]:
    """What is removed: not whose identity it is, where that is said."""
    return _MARKS[:1] if says_who and _names_somebody(message) else _MARKS


def _names_somebody(message: Message) -> bool:
    return bytes(message.identity_fields.assertedIdentity)[:1] == b"{"


class _Vouched(msgspec.Struct):
    issuer: str
    subject: str
    username: str = ""
    userURL: str = ""  # noqa: N815 (wire spelling)


_vouched = msgspec.json.Decoder(_Vouched)


def vouched_for(message: Message, own: str, peer: str) -> Identity | None:
    """The identity of a sender that a trusted node says it has verified.

    Its issuer is that node, and it is of this message alone, so it does not expire. It is nobody of
    this domain, whose users this node itself knows, and has no name that could be one of theirs, or
    of a third domain, for which that node does not speak; a message with a token of its own is
    verified by that.

    Args:
        message: a message that has come over a link.
        own: this node's domain.
        peer: the domain of the node.

    Returns:
        None if it says of nobody, or what cannot be.
    """
    said = message.identity_fields
    if said.identity or said.idToken or said.accessToken or not _names_somebody(message):
        return None
    try:
        one = _vouched.decode(said.assertedIdentity)
    except msgspec.DecodeError:
        return None
    _, at, of_name = one.username.rpartition("@")
    of_name, of_url = of_name.lower(), addresses.parse(one.userURL).home
    is_ours = any(_is_own(each, own, peer) for each in (of_name, of_url))
    if is_ours or not one.subject or len(bytes(said.assertedIdentity)) > MAX_SAID:
        return None
    url = one.userURL if _is_within(of_url, peer) else ""
    is_named = at and _is_within(of_name, peer)
    name = one.username if is_named else url or f"{one.subject}@{peer}"
    return Identity(NODE_ISSUER + peer, f"{one.subject} {one.issuer}", name, peer, url)


def _is_own(domain: str, own: str, peer: str) -> bool:
    """Whether a domain is this node's, at whichever port, and not the peer's at another port."""
    return domain != peer and domain.partition(":")[0] == own.partition(":")[0]


def _is_within(domain: str, peer: str) -> bool:
    """Whether a domain is the peer's, or below it."""
    return domain == peer or domain.endswith(f".{peer}")


def incoming_fault(message: Message, own: str, peer: str) -> str:
    """Why a message of a peer is not carried, "" if it is.

    Args:
        message: the message that the stub has posted.
        own: this node's domain.
        peer: the peer's domain.
    """
    sender = addresses.parse(message.sender)
    if not sender.domain or sender.home != peer:
        return f"{message.sender} is not of the domain {peer}"
    if len(message.recipients) != 1:
        return "it names several recipients"
    to = addresses.parse(message.recipients[0])
    if to.scheme in addresses.NODE_SCHEMES:
        is_read = message.type in ("read", "response") and to.domain.lower() == f"registry.{own}"
        return "" if is_read else f"{to.text} takes nothing from other domains"
    if to.domain and to.home == own:
        return ""
    if to.home == peer and addresses.is_event(to.text) and message.type != "response":
        return ""  # what an object of the peer's says to those who observe it here
    return f"{to.text} is not of this domain, and nothing is passed on between domains"


def domain_fault(domain: str) -> str:
    """Why a domain cannot be a peer's, "" if it can.

    >>> domain_fault("b.example"), domain_fault("b.example:8443"), domain_fault("10.0.0.1")
    ('', '', 'is a number')
    """
    host, colon, port = domain.partition(":")
    labels = host.split(".")
    if not domain.isascii() or len(host) > 253 or not all(map(_is_label, labels)) or "/" in port:
        return "is no domain: one looks like b.example, or b.example:8443"
    if colon and not (port.isdigit() and 0 < int(port[:6]) < 65_536):
        return "has a port that is none: one is a number from 1 to 65535"
    if labels[-1].isdigit():
        return "is a number"
    if len(labels) < 2 or labels[-1] in ("localhost", "local", "internal"):
        return "is a name of this machine's network"
    return ""


def _is_label(label: str) -> bool:
    is_plain = label.replace("-", "").replace("_", "").isalnum() and len(label) <= 63
    return is_plain and label == label.lower() and not label.startswith("-")


def _without(message: Message, names: tuple[str, ...]) -> bytes:
    if message.is_plain_without(names):
        return message.frame
    envelope = RAW_FIELDS.decode(message.frame)
    has_body = "body" in envelope  # stubs of the field write into it
    body = RAW_FIELDS.decode(message.body)
    if any(name in body for name in names):
        for name in names:
            body.pop(name, None)
        envelope["body"] = msgspec.Raw(_encode(body))
    elif not has_body:
        envelope["body"] = msgspec.Raw(b"{}")
    elif len(message.recipients) == 1:
        return message.frame
    envelope["to"] = msgspec.Raw(_encode(message.recipients[0]))
    return _encode(envelope)
