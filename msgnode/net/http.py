"""The HTTP client of the node, and where its requests may go.

Rules
- A URL that others have given leads only to public addresses, by TLS, or to networks that the
  operator has named. The host is resolved here, all its addresses are checked, and the connection
  goes to one of exactly these, even if the name resolves differently a moment later.
- A host that the operator has named may have any address (ANYWHERE).
- Redirects are not followed, no proxy is used, and compressed answers are refused, because their
  length is known too late. One time limit applies to the whole exchange, however slowly an answer
  comes, and no more of it is read than allowed.
- Each host has connections of its own, so that one that freezes takes none from the others.
- A name whose servers do not answer blocks a thread for longer than the limit. These threads are a
  pool of their own, so that nothing else of the worker waits for them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import httpcore

from msgnode.resources import user_agent

from .tls import client_context

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

ANYWHERE: Sequence[Network] = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))

Resolve = Callable[[str, int], Awaitable[list[str]]]

MAX_URL = 2_000
_MAX_WITH_QUERY = 64_000
_MAX_CONNECTIONS, _MAX_IDLE = 1_000, 100
LOOKUPS_AT_ONCE = 64
_LOOKUPS = ThreadPoolExecutor(LOOKUPS_AT_ONCE, "lookup")  # of all instances
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")  # others may lead to an IPv4 address


class NotAllowed(Exception):
    """The URL leads to an address that is not allowed; the text says why."""


class NoAnswer(Exception):
    """There was no answer, or not in time."""


class BadAnswer(NoAnswer):
    """There was an answer that is not read: it is too long, or compressed."""


class Answer(NamedTuple):
    """A response; `location` and `content_type` are texts of its headers."""

    status: int
    body: bytes
    location: str = ""
    content_type: str = ""


def url_fault(url: str, networks: Sequence[Network], longest: int = MAX_URL) -> str:
    """Why a URL cannot be asked at all, "" if it may be."""
    if len(url) > longest or not url.isascii() or any(each <= " " for each in url):
        return f"must be a URL of at most {longest} printable ASCII characters"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is no URL"
    schemes = ("https", "http") if networks else ("https",)
    if parts.scheme not in schemes or not host:
        return f"must begin with {' or '.join(f'{each}://' for each in schemes)} and name a host"
    if parts.username is not None or parts.password is not None:
        return "must not name a user"
    return ""


def is_allowed(address: str, networks: Iterable[Network], is_tls: bool = True) -> bool:
    """Whether the node may connect to an IP address: of these networks or, by TLS, a public one.

    >>> is_allowed("127.0.0.1", ()), is_allowed("169.254.169.254", ()), is_allowed("8.8.8.8", ())
    (False, False, True)
    """
    try:
        ip: IpAddress = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if any(ip in network for network in networks):
        return True
    if isinstance(ip, ipaddress.IPv6Address):
        is_plain = ip in _GLOBAL_UNICAST and ip.sixtofour is None and ip.teredo is None
        return is_tls and is_plain and ip.is_global
    return is_tls and ip.is_global and not ip.is_multicast


async def allowed_addresses(
    host: str,
    port: int,
    networks: Sequence[Network],
    resolve: Resolve | None = None,
    is_tls: bool = True,
) -> list[str]:
    """The addresses of a host, each of which the node may connect to: without TLS, in `networks`.

    Raises:
        NotAllowed: one of them is not for the node.
        OSError: the host cannot be resolved.
    """
    try:
        found = await (resolve or _resolved)(host, port)
    except (OSError, UnicodeError) as error:
        raise OSError(f"{host} cannot be resolved: {error}") from None
    if any(not is_allowed(each, networks, is_tls) for each in found):
        how = "" if is_tls else " without TLS"
        raise NotAllowed(f"{host} leads to an address that the node does not connect to{how}.")
    return found


class _Stream(httpcore.AsyncNetworkStream):
    """A connection that takes the shared context for TLS: httpcore makes one for each."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  (httpcore's)
    ) -> httpcore.AsyncNetworkStream:
        return await self._inner.start_tls(await client_context(), server_hostname, timeout)


class _CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects only to the checked addresses of a host."""

    def __init__(self, networks: Sequence[Network], resolve: Resolve, is_tls: bool) -> None:
        self._networks = networks
        self._resolve = resolve
        self._is_tls = is_tls
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (httpcore's)
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            addresses = await allowed_addresses(
                host, port, self._networks, self._resolve, self._is_tls
            )
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(str(error)) from None
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                return _Stream(await self._network.connect_tcp(address, port, timeout))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        raise NotAllowed("The node connects to no sockets of its own machine.")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class HttpClient:
    """Sends requests. Made where it is used, also before there is a loop.

    Args:
        networks: that may be connected to though they are not public, also without TLS; ANYWHERE
            where the operator has named the hosts.
        seconds: that one exchange may take in all.
        max_body: bytes of an answer that are read.
        resolve: finds the addresses of a host; that of the system, if it is left out.
        connections: to one host at a time, at most.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        seconds: float,
        max_body: int,
        resolve: Resolve | None = None,
        connections: int = 250,
    ) -> None:
        self.networks = networks
        self._seconds = seconds
        self._max_body = max_body
        self._connections = connections
        self._of_host: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # in use
        self._pools = {
            scheme: httpcore.AsyncConnectionPool(
                max_connections=_MAX_CONNECTIONS,
                max_keepalive_connections=_MAX_IDLE,
                keepalive_expiry=60.0,
                ssl_context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # never used: see _Stream
                network_backend=_CheckedNetwork(networks, resolve or _resolved, scheme == "https"),
            )
            for scheme in ("https", "http")
        }

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Post to a URL; the content is JSON unless the headers say otherwise.

        Raises:
            NotAllowed: it leads where the node does not go.
            NoAnswer: there is no answer.
            BadAnswer: there is one that is not read.
        """
        return await self.request("POST", url, body, headers)

    async def delete(self, url: str) -> Answer:
        """Send DELETE to a URL. Raises what `post` raises."""
        return await self.request("DELETE", url)

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Send GET to a URL. Raises what `post` raises."""
        return await self.request("GET", url, None, headers)

    async def request(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        reads_body: bool = True,
    ) -> Answer:
        """Send a request; with `reads_body` False only the status is read.

        Raises what `post` raises.
        """
        if fault := url_fault(url, self.networks, _MAX_WITH_QUERY):
            raise NotAllowed(f"The URL {fault}.")
        sent = dict(headers or {})
        if body is not None:
            sent = {"Content-Type": "application/json", **sent, "Content-Length": str(len(body))}
        try:
            async with asyncio.timeout(self._seconds):
                return await self._exchange(method, url, body, sent, reads_body)
        except TimeoutError:
            raise NoAnswer(f"It did not answer within {self._seconds:g} s.") from None
        except (
            *(httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException),
            *(httpcore.UnsupportedProtocol, httpcore.ConnectionNotAvailable, OSError),
        ) as error:
            raise NoAnswer(f"It cannot be reached: {str(error) or type(error).__name__}") from None

    async def close(self) -> None:
        """End all connections."""
        for pool in self._pools.values():
            await pool.aclose()

    async def _exchange(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        reads_body: bool,
    ) -> Answer:
        received: list[bytes] = []
        size = 0
        parts = urlsplit(url)
        sent = {**headers, "User-Agent": user_agent(), "Host": parts.netloc}
        told = [(name.encode(), value.encode()) for name, value in sent.items()]
        pool = self._pools[parts.scheme]
        of_host = self._of_host.setdefault(parts.netloc, asyncio.Semaphore(self._connections))
        async with of_host, pool.stream(method, url, headers=told, content=body) as answer:
            found = {name.lower(): value for name, value in answer.headers}
            location = found.get(b"location", b"").decode("latin-1")
            if not reads_body:
                return Answer(answer.status, b"", location)
            if found.get(b"content-encoding", b"identity") != b"identity":
                raise BadAnswer("It answered compressed, which was not asked for.")
            async for part in answer.aiter_stream():
                size += len(part)
                if size > self._max_body:
                    raise BadAnswer(f"It answered more than {self._max_body} bytes.")
                received.append(part)
            kind = found.get(b"content-type", b"").decode("latin-1")
            return Answer(answer.status, b"".join(received), location, kind)


async def _resolved(host: str, port: int) -> list[str]:
    """The addresses of a host. Raises OSError and UnicodeError."""
    look = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_LOOKUPS, look)
    return list(dict.fromkeys(str(each[4][0]) for each in found))
