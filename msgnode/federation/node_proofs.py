"""Authenticates connections between nodes: those of peers here, and this node's own there.

A runtime URL proves nothing: any visitor may claim one of any domain. So:
- The node opens the sockets of its stubs itself. In the upgrade it sends (HEADER) its domain, and a
  secret that is specific to the peer's domain. No stub sees it.
- If somebody connects with such a secret, naming a domain that is a peer here, the node asks for
  the secret's digest where the stub of that domain was found: either it is that domain's node, or
  it is refused. The same applies while the peer is paused or blocked.
- When an operator's decision on a domain changes, connections in its name are asked to reconnect.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable, Iterable
from time import monotonic

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from msgnode.core import addresses
from msgnode.core.errors import Forbidden, NodeError, TooMany, Unavailable
from msgnode.core.rates import source_of
from msgnode.core.token_bucket import TokenBucket
from msgnode.net.http import HttpClient, NoAnswer, NotAllowed
from msgnode.sessions.connection import Connection
from msgnode.sessions.rules import CloseCode

from . import discovery, store
from .store import PeerRow

HEADER = "Messaging-Node"
"""The header of a WebSocket upgrade: `<domain of the connecting node> <secret>`."""
PATH = ".well-known/messaging-node"
"""Where a node confirms its secrets: `<PATH>/<domain it connects to>/<digest>`."""
PROVED_SECONDS = 300.0
"""Seconds for which a confirmed secret is accepted; it may have been replaced."""
ASKED_A_SECOND = 10.0
"""Most queries per second to one peer; further connections must retry later."""
ASKED_FOR_A_SOURCE = 2.0
"""The same per source address, so that one source cannot block the others."""
_SOURCES = 1_000  # kept at most; the one unused for longest is dropped
_IS_OURS = 204


def secret(key: str, own: str, domain: str) -> str:
    """The secret with which this node identifies itself to the node of one domain.

    Args:
        key: the node's key.
        own: its domain.
        domain: the peer's domain.
    """
    text = f"node of {own} at {domain}".encode()
    return hmac.new(key.encode(), text, hashlib.sha256).hexdigest()


def digest(text: str) -> str:
    """The digest of a secret, as used in queries."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def is_own(keys: Iterable[str], own: str, domain: str, asked: str) -> bool:
    """Whether this is the digest of the secret that this node sends to the node of a domain.

    Args:
        keys: the node's key, and earlier ones that are still valid.
        own: its domain.
        domain: the peer's domain.
        asked: the digest, in ASCII.
    """
    return any(hmac.compare_digest(digest(secret(key, own, domain)), asked) for key in keys)


class NodeProofs:
    """Verifies connections to a worker that claim to be a peer's node. One instance per worker.

    Args:
        own: this node's domain.
        http: the HTTP client for peers.
        clock: a clock, in seconds.
    """

    def __init__(self, own: str, http: HttpClient, clock: Callable[[], float] = monotonic) -> None:
        self._own = addresses.home_domain(own)
        self._http = http
        self._clock = clock
        self._rows: dict[str, PeerRow] = {}
        self._proved: dict[str, tuple[str, float]] = {}  # domain -> digest, until
        self._buckets: dict[str, TokenBucket] = {}
        self._sources: OrderedDict[str, TokenBucket] = OrderedDict()
        self._came: dict[Connection, tuple[str, str]] = {}  # -> domain it named, domain proved

    async def prove(self, header: str, source: str = "") -> str:
        """The peer whose node sent this header in an upgrade, "" if it names none.

        Args:
            header: the header.
            source: the address it comes from, if known.

        Raises:
            NodeError: it is not that node, that cannot be verified now, or it is not admitted.
        """
        domain, _, said = header.partition(" ")
        row = self._rows.get(domain)
        if row is None or row.is_pending:
            return ""
        if not row.is_served:
            raise store.refusal_of(row)
        asked = digest(said)
        known, until = self._proved.get(domain, ("", 0.0))
        if known == asked and self._clock() < until:
            return domain
        bucket = self._buckets.setdefault(domain, TokenBucket(ASKED_A_SECOND, self._clock))
        if not (self._may_ask(domain, source) and bucket.take()):
            raise TooMany(f"Too many say that they are the node of {domain}: come again later.")
        if not await self._is_its_own(row, asked):
            raise Forbidden(
                f"The node of {domain} does not confirm that this connection is its own."
            )
        self._proved[domain] = asked, self._clock() + PROVED_SECONDS
        return domain

    def _may_ask(self, domain: str, source: str) -> bool:
        """Whether another query for this domain and source is within the limits."""
        if not source:
            return True
        named = f"{domain} {source_of(source)}"
        bucket = self._sources.setdefault(named, TokenBucket(ASKED_FOR_A_SOURCE, self._clock))
        self._sources.move_to_end(named)
        if len(self._sources) > _SOURCES:
            self._sources.popitem(last=False)
        return bucket.take()

    def came(self, connection: Connection, header: str, proved: str) -> None:
        """Note an open connection with this header."""
        domain = header.partition(" ")[0]
        self._came[connection] = domain, proved
        self._look_at(connection)

    def left(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._came.pop(connection, None)

    def use(self, rows: Iterable[PeerRow]) -> None:
        """Set the peers."""
        self._rows = {row.domain: row for row in rows}
        for known in (self._proved, self._buckets):
            for domain in [each for each in known if each not in self._rows]:
                del known[domain]
        for connection in list(self._came):
            self._look_at(connection)

    def _look_at(self, connection: Connection) -> None:
        """Have a connection reconnect if it would now be treated differently."""
        domain, proved = self._came[connection]
        row = self._rows.get(domain)
        may_stay = not proved
        if row is not None and not row.is_pending:
            may_stay = row.is_served and proved == domain
        if not may_stay:
            connection.end(CloseCode.GOING_AWAY, f"{domain} is looked at anew: come again")

    async def _is_its_own(self, row: PeerRow, asked: str) -> bool:
        """Whether the peer confirms the secret with this digest. Raises NodeError."""
        failure: NodeError | None = None
        for base in discovery.bases_of(row.domain, row.url):
            try:
                answer = await self._http.get(f"{base}/{PATH}/{self._own}/{asked}")
            except (NoAnswer, NotAllowed) as error:
                failure = failure or Unavailable(f"The node of {row.domain}: {error}")
                continue
            if answer.status == _IS_OURS:
                return True
            if answer.status >= 500 or answer.status == 429:
                failure = Unavailable(f"The node of {row.domain} answered {answer.status}.")
        if failure is not None:
            raise failure
        return False


@require_safe
@never_cache
def own_connection(request: HttpRequest, domain: str, digest: str) -> HttpResponse:
    """`/.well-known/messaging-node/<domain>/<digest>`: 204 if this node has sent it, else 404.

    Any worker answers, and the web process.
    """
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    is_ours = settings.FEDERATION != "off" and is_own(keys, settings.DOMAIN, domain, digest)
    return HttpResponse(status=204 if is_ours else 404)
