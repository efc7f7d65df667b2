"""Finds the protostub of a foreign domain in that domain's catalogue.

These are tried in order until one has something: the descriptor at the domain itself, its two files
as in a static catalogue, both again at `catalogue.<domain>`. Redirects are not followed, and only
addresses that the node may connect to are used (net/http).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from urllib.parse import urlsplit

from msgnode.net.http import HttpClient, NoAnswer, NotAllowed

from . import descriptor, stub_signature
from .descriptor import BadDescriptor, FoundStub
from .stub_sockets import socket_fault

_PATH = "/.well-known/protocolstub/default"
FIND_SECONDS = 20.0
"""Most seconds for one domain, however many answers it gives: others wait for their turn."""
_OK, _MISSING = 200, (404, 405, 410)


class NotFound(Exception):
    """The domain has no protostub."""


class NotReached(Exception):
    """The domain cannot be reached; the text says why."""


class Rejected(Exception):
    """The stub that the domain offers cannot be used; the text says why."""


async def find(
    http: HttpClient,
    domain: str,
    url: str = "",
    hosts: frozenset[str] = frozenset(),
    keys: str = "",
    must_be_signed: bool = False,
) -> FoundStub:
    """Find the stub of a domain.

    Args:
        http: the HTTP client.
        domain: the peer's domain.
        url: the URL of its node, if that is not https://<domain>.
        hosts: further hosts that its stub may connect to.
        keys: one of these must have signed it, if there are any.
        must_be_signed: whether a signature is required.

    Raises:
        NotFound: it has none.
        NotReached: it does not answer.
        Rejected: its stub cannot be used.
    """
    failure, until = "", asyncio.get_running_loop().time() + FIND_SECONDS
    for base in bases_of(domain, url):
        try:
            async with asyncio.timeout_at(until):
                found = await _at(http, base)
        except (BadDescriptor, NotAllowed) as error:
            raise Rejected(str(error)) from None
        except (NoAnswer, TimeoutError) as error:
            failure = failure or str(error) or f"It took more than {FIND_SECONDS:g} s in all."
            continue
        if found is not None:
            allowed = hosts_of(domain, url, hosts)
            if fault := socket_fault(found.url, allowed, http.networks):
                raise Rejected(f"The stub would connect to {found.url[:200]!r}: {fault}.")
            return _signed(found, keys, must_be_signed)
    if failure:
        raise NotReached(failure)
    raise NotFound


def _signed(found: FoundStub, keys: str, must_be_signed: bool) -> FoundStub:
    """The stub with the id of the key that has signed it, if required. Raises Rejected."""
    if not keys:
        if must_be_signed:
            raise Rejected("Stubs must be signed here, and no key was given for this peer.")
        return found
    try:
        signer = stub_signature.signer_of(found.content, found.signature, keys)
    except stub_signature.BadSignature as error:
        raise Rejected(str(error)) from None
    return replace(found, signed_by=signer)


def bases_of(domain: str, url: str) -> list[str]:
    """The possible base URLs of a domain's catalogue, in order."""
    return [url.rstrip("/")] if url else [f"https://{domain}", f"https://catalogue.{domain}"]


def hosts_of(domain: str, url: str, hosts: frozenset[str]) -> frozenset[str]:
    """The hosts that the stub of a domain may connect to."""
    named = {domain.partition(":")[0], (urlsplit(url).hostname or "") if url else ""}
    return frozenset(filter(None, named | hosts))


async def _at(http: HttpClient, base: str) -> FoundStub | None:
    """The stub in one catalogue, None if it has none."""
    answer = await http.get(f"{base}{_PATH}", {"Accept": "application/json"})
    if answer.status == _OK:
        return descriptor.read(answer.body)
    if answer.status not in _MISSING:
        raise NoAnswer(f"{base} answered {answer.status}.")
    answer = await http.get(f"{base}{_PATH}.ps.json")
    if answer.status in _MISSING:
        return None
    script = await http.get(f"{base}{_PATH}.ps.js")
    if answer.status != _OK or script.status != _OK:
        raise NoAnswer(f"{base} answered {answer.status} and {script.status}.")
    return descriptor.read(answer.body, script.body)
