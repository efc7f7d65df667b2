"""Tries the link to a peer for an operator, and says in words what would fail.

It does what the worker does that serves the peer: it reads what the domain publishes of its node,
dials, and proves who it is. The node there answers the proof of a trial by ending it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

from msgnode.net.http import HttpClient, NoAnswer, NotAllowed

from . import discovery, link_keys
from . import link_protocol as protocol
from .link_keys import BadNode, FoundNode, Keys
from .link_socket import OwnNode
from .link_wire import ELSEWHERE_SECONDS, ELSEWHERE_TIMES, Wire

SECONDS = 10.0
"""How long one answer may take."""


class Finding(NamedTuple):
    """One thing that was looked at, and whether it is as it should be."""

    is_good: bool
    what: str
    text: str


_NOBODY: Any = SimpleNamespace(key_is_unknown=lambda: None)
"""The Peer of a link that carries nothing."""


async def tried(
    own: OwnNode, http: HttpClient, domain: str, url: str, keys: Keys
) -> AsyncIterator[Finding]:
    """Try the link to a peer.

    Args:
        own: this node.
        http: the HTTP client for peers.
        domain: the peer's domain.
        url: the URL of its node, "" if that is https://<domain>.
        keys: the keys of its node that count.
    """
    place, found, why = await _document(http, domain, url)
    yield Finding(found is not None, "document", why or f"{place}: it names {_named(found)}")
    if found is not None:
        yield _keys(domain, found, keys)
    if keys:
        yield await _proof(own, domain, url, keys)


async def _document(http: HttpClient, domain: str, url: str) -> tuple[str, FoundNode | None, str]:
    """Where a domain publishes its keys, these, and what is wrong with that."""
    wrong = []
    for base in discovery.bases_of(domain, url):
        place = f"{base}/{link_keys.PATH}"
        try:
            answer = await http.get(place)
            if answer.status == 200:
                return place, link_keys.read_document(answer.body, domain, time.time()), ""
            wrong.append(f"{place} answered {answer.status}: no node of this software, or a proxy")
        except (NoAnswer, NotAllowed, BadNode) as error:
            wrong.append(f"{place}: {error}")
    return "", None, "; ".join(wrong)


def _keys(domain: str, found: FoundNode, keys: Keys) -> Finding:
    """Whether the keys of a peer that count are those that it publishes."""
    if not keys:
        approve = f"approve {domain}, then its keys do"
        return Finding(False, "keys", f"none of {_named(found)} counts here: {approve}")
    if gone := keys.keys() - found.keys.keys():
        return Finding(False, "keys", f"{', '.join(gone)} counts here, and is withdrawn there")
    if new := found.keys.keys() - keys.keys():
        return Finding(False, "keys", f"{', '.join(new)} does not count here: approve {domain}")
    return Finding(True, "keys", "all of them count here")


async def _proof(own: OwnNode, domain: str, url: str, keys: Keys) -> Finding:
    """Whether both nodes prove to each other who they are, by the newest key that counts there."""
    first = None
    for key in own.keys:
        wire = Wire(replace(own, keys=[key]), domain, url, _NOBODY, is_test=True)
        wire.keys = keys
        for _ in range(ELSEWHERE_TIMES):
            if (fault := await wire.dial()).code != protocol.ELSEWHERE:
                break
            await asyncio.sleep(ELSEWHERE_SECONDS)
        if fault.code == protocol.PASSED:
            how = f"by key {key.kid} of this node"
            if first is not None:
                how += f", which is an earlier one; by the one of now: {first}"
            return Finding(first is None, "proof", f"both nodes have proved who they are {how}")
        first = first or fault
        if fault.code != protocol.BAD_PROOF:
            break
    return Finding(False, "proof", str(first))


def _named(found: FoundNode | None) -> str:
    return ", ".join(found.keys) if found is not None else ""
