"""REDIS_URL: which Redis is meant, and how it is spoken to.

redis://[user:password@]host:port/db            a server; rediss:// with TLS, unix:// by its socket
redis+sentinel://[user:password@]host:port,host:port/service[/db]
                                                the server that these sentinels call the master;
                                                rediss+sentinel:// with TLS
redis+cluster://[user:password@]host:port,host:port
                                                the Redis Cluster that these servers are of;
                                                rediss+cluster:// with TLS
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from redis.asyncio.connection import parse_url

from .faults import Unsuitable

PORT, SENTINEL_PORT = 6379, 26379


class RedisUrl(NamedTuple):
    """What a URL says.

    `sentinels` are empty where the server itself is named, `seeds` are servers of a cluster. `tls`
    are redis-py's options for it, None without.
    """

    host: str = ""
    port: int = 0
    path: str = ""
    database: int = 0
    username: str = ""
    password: str = ""
    tls: Mapping[str, Any] | None = None
    sentinels: tuple[tuple[str, int], ...] = ()
    service: str = ""
    seeds: tuple[tuple[str, int], ...] = ()
    is_cluster: bool = False

    @property
    def tls_of_redis_py(self) -> dict[str, Any]:
        """The arguments that have a client of redis-py speak TLS, or not."""
        return {} if self.tls is None else {"ssl": True, **self.tls}


def parse(url: str) -> RedisUrl:
    """Raises Unsuitable for what is no URL of a Redis."""
    scheme = url.partition("://")[0]
    try:
        if scheme.endswith(("+sentinel", "+cluster")):
            return _of_several(url)
        options: Mapping[str, Any] = parse_url(url)
    except ValueError as error:
        raise Unsuitable(f"REDIS_URL cannot be read: {error}") from None
    return RedisUrl(
        options.get("host", "localhost"),
        options.get("port", PORT),
        options.get("path", "") if scheme == "unix" else "",
        options.get("db", 0),
        options.get("username") or "",
        options.get("password") or "",
        _tls_options(options) if scheme == "rediss" else None,
    )


def celery_broker(url: str) -> tuple[str, dict[str, str]]:
    """The same Redis as Celery names it: its broker URL, and options of the transport."""
    if "+sentinel://" not in url:
        return url, {}
    parsed = parse(url)
    login = f":{parsed.password}@" if parsed.password else ""
    hosts = [f"sentinel://{login}{host}:{port}" for host, port in parsed.sentinels]
    return ";".join(f"{each}/{parsed.database}" for each in hosts), {"master_name": parsed.service}


def _of_several(url: str) -> RedisUrl:
    """What a URL says that names sentinels, or servers of a cluster."""
    parts = urlsplit(url)
    kind, _, what = parts.scheme.partition("+")
    if kind not in ("redis", "rediss"):
        raise ValueError("its scheme begins with neither redis nor rediss")
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    told = RedisUrl(
        username=unquote(username),
        password=unquote(password),
        tls=_tls_options(options) if kind == "rediss" else None,
    )
    path = parts.path.strip("/")
    if what == "cluster":
        if path not in ("", "0"):
            raise ValueError("a Redis Cluster has no databases but 0")
        return told._replace(seeds=_places(hosts, PORT), is_cluster=True)
    service, _, database = path.partition("/")
    if not service or not re.fullmatch(r"\d*", database):
        raise ValueError("redis+sentinel:// needs the name of the service: …/service[/db]")
    return told._replace(
        database=int(database or 0),
        sentinels=_places(hosts, SENTINEL_PORT),
        service=unquote(service),
    )


def _places(hosts: str, port_else: int) -> tuple[tuple[str, int], ...]:
    return tuple(_place(each, port_else) for each in hosts.split(","))


def _place(text: str, port_else: int) -> tuple[str, int]:
    host, _, port = text.rpartition(":") if re.search(r":\d+$", text) else (text, "", "")
    if not host:
        raise ValueError("a host is missing")
    return host.strip("[]"), int(port or port_else)


def _tls_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name.startswith("ssl_")}


def tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """The context that redis-py makes of these options. Raises Unsuitable if one is unreadable."""
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
        if options.get("ssl_certfile"):
            context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"))
    except OSError as error:
        raise Unsuitable(f"The certificates of REDIS_URL cannot be read: {error}") from None
    if options.get("ssl_check_hostname", True) in ("false", "False", False):
        context.check_hostname = False
    if options.get("ssl_cert_reqs") == "none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
