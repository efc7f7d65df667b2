"""The kinds of nodes that a peer may be, and what each needs of the link to it. Pure.

The kind is guessed from the names in the descriptor of its stub, else in the stub itself; an
operator may set another. What works with which: docs/federation.md, nodes of the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PeerKind:
    """A kind of node.

    Attributes:
        label: its name, for people.
        list_field: the field in which its subscription manager reads the addresses of a request:
            the word itself, "subscribe" or "unsubscribe", if "".
        routes_to_known_only: whether it routes only to addresses that were subscribed or have
            written, per socket, so that this node subscribes those of its own that write there.
        learns: the beginning of those that it knows by itself once they have written.
        stub_comes_back: whether its stub can connect again after it was disconnected; else it is
            started anew.
        answers_all: whether it answers requests to addresses that nobody has there.
        has_visitors: whether its runtimes may come here themselves, if no operator says otherwise:
            not if its node speaks for all of them.
    """

    label: str
    list_field: str = "resources"
    routes_to_known_only: bool = False
    learns: str | None = None
    stub_comes_back: bool = True
    answers_all: bool = False
    has_visitors: bool = True


OURS, VERTX, NODEJS, NOMATRIX, UNKNOWN = "ours", "vertx", "nodejs", "nomatrix", "unknown"
KINDS = {
    OURS: PeerKind("a Messaging Node like this one", answers_all=True, has_visitors=False),
    VERTX: PeerKind("Vert.x", routes_to_known_only=True, learns="hyperty://"),
    NODEJS: PeerKind("NodeJS", list_field="", routes_to_known_only=True, stub_comes_back=False),
    NOMATRIX: PeerKind("NoMatrix", routes_to_known_only=True),
    UNKNOWN: PeerKind("unknown", answers_all=True, has_visitors=False),
}
_OF_NAME = {"messagingnode": OURS, "vertx": VERTX, "node": NODEJS, "nodejs": NODEJS,
            "matrix": NOMATRIX, "nomatrix": NOMATRIX}  # fmt: skip
_NAME = re.compile(r"(?<![a-z])(messagingnode|vertx|nodejs|node|nomatrix|matrix)protostub", re.I)


def guessed(names: Iterable[str]) -> str:
    """The kind of node that a stub is of, by the first of these texts that tells.

    Args:
        names: the names in its descriptor, and its source.

    >>> guessed(["default", "class VertxProtoStub {}"]), guessed(["Stub"])
    ('vertx', 'unknown')
    """
    for each in names:
        if found := _NAME.search(each):
            return _OF_NAME[found[1].lower()]
    return UNKNOWN


def kind_of(name: str) -> PeerKind:
    """The kind of this name; the unknown one for a name that is none."""
    return KINDS.get(name, KINDS[UNKNOWN])
