"""A node in its production shape: PostgreSQL, Redis, two workers, the web process, TLS in front.

The proxies run with deploy/'s own files, of which only names, ports and certificate are replaced.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from websockets.asyncio.client import connect
from websockets.typing import Origin

from tests.certificates import certificate
from tests.client import Client
from tests.node import ROOT, Node
from tests.ports import free_port
from tests.waiting import until

REFERER = {"Referer": "https://localhost/"}
"""What a browser says where the proxy has the port of HTTPS."""
Ports = tuple[int, int, int]
"""Of two workers and of the web process."""


def replaced(file: str, changes: dict[str, str]) -> str:
    """A file of deploy/ in which each of these texts, which it has to have, is another."""
    text = (ROOT / "deploy" / file).read_text(encoding="utf-8")
    for ours, theirs in changes.items():
        assert ours in text, f"{file} has no {ours}"
        text = text.replace(ours, theirs)
    return text


def _upstreams(ports: Ports) -> dict[str, str]:
    theirs = zip((8000, 8001, 8100), ports, strict=True)
    return {f"127.0.0.1:{ours}": f"127.0.0.1:{port}" for ours, port in theirs}


def nginx_configuration(place: Path, ports: Ports, http: int, https: int) -> str:
    """deploy/nginx.conf inside what a package's nginx.conf has around it."""
    text = replaced("nginx.conf", {
        "node.example.org": "localhost",
        **_upstreams(ports),
        "listen 80;": f"listen 127.0.0.1:{http};",
        "listen 443 ssl;": f"listen 127.0.0.1:{https} ssl;",
        "/etc/ssl/node/": f"{place}/",
    })  # fmt: skip
    folders = "".join(
        f"{kind}_temp_path {place}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"daemon off; pid {place}/pid; error_log {place}/error.log;\nevents {{}}\n"
        "http { add_header X-Answered-By $upstream_addr always;\n"
        f"access_log {place}/access.log;\n{folders}{text}\n}}\n"
    )


def haproxy_configuration(place: Path, ports: Ports, http: int, https: int) -> str:
    """deploy/haproxy.cfg."""
    text = replaced("haproxy.cfg", {
        "node.example.org": "localhost",
        **_upstreams(ports),
        "bind :80\n": f"bind 127.0.0.1:{http}\n",
        "bind :443 ": f"bind 127.0.0.1:{https} ",
        "/etc/ssl/node/": f"{place}/",
        "maxconn 100000": "maxconn 1000",  # or it wants as many files
    })  # fmt: skip
    told = "    http-response set-header X-Answered-By %si:%sp\n"
    return text.replace("    default_backend web\n", f"    default_backend web\n{told}")


@contextmanager
def proxy(kind: str, program: str, place: Path, ports: Ports) -> Iterator[int]:
    """nginx or HAProxy while the block runs; the port that speaks TLS."""
    place.mkdir()
    certificate(place)
    http, https = free_port(), free_port()
    file = place / "configuration"
    make = nginx_configuration if kind == "nginx" else haproxy_configuration
    file.write_text(make(place, ports, http, https), encoding="utf-8")
    words = ("-p", str(place), "-c", str(file)) if kind == "nginx" else ("-db", "-f", str(file))
    with (place / "said").open("wb") as said:
        process = subprocess.Popen([program, *words], stdout=said, stderr=said)
    try:
        tls = ssl.create_default_context(cafile=str(place / "fullchain.pem"))
        with httpx.Client(verify=tls, trust_env=False) as client:

            def answers() -> bool:
                assert process.poll() is None, (place / "said").read_text()
                try:
                    return client.get(f"https://localhost:{https}/health/ready").status_code == 200
                except httpx.TransportError:
                    return False

            until(answers, 30)
        yield https
    finally:
        process.terminate()
        process.wait(20)


def settings(database_url: str, redis_url: str) -> dict[str, str]:
    """Those of production, for clients without an identity."""
    return {
        "NODE_MODE": "production",
        "SECRET_KEY": f"only for tests {uuid4().hex}",
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "ALLOWED_HOSTS": "localhost",
        "ADMISSION": "anonymous",
        "REGISTRY_ACCESS": "open",
        "WORKER_TIMEOUT": "5",
    }


class Production:
    """Its processes, on a migrated database.

    The proxy is started when the workers and the web process answer.
    """

    def __init__(self, place: Path, kind: str, program: str, **settings: str) -> None:
        self.place = place
        self.one = Node(place, **settings)
        self.other = Node(place, **settings)
        self.web = Node(place, ROLE="web", **settings)
        self._kind, self._program = kind, program
        self._stack = ExitStack()
        self.port = 0

    @property
    def tls(self) -> ssl.SSLContext:
        """Trusts the certificate of the proxy."""
        return ssl.create_default_context(cafile=str(self.place / "proxy" / "fullchain.pem"))

    def start(self) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        for process in (self.one, self.other, self.web):
            process.start()
            self._stack.callback(process.kill)
        ports = (self.one.port, self.other.port, self.web.port)
        front = proxy(self._kind, self._program, self.place / "proxy", ports)
        self.port = self._stack.enter_context(front)

    def stop(self) -> None:
        self._stack.close()

    async def come(self) -> Client:
        """A client with a socket through the proxy, without a session."""
        return await Client(f"wss://localhost:{self.port}/ws").connect(ssl=self.tls)

    async def watch(self, browser: httpx.Client) -> dict[str, Any]:
        """What a page of the console that moves is told first, through the proxy."""
        cookies = "; ".join(f"{each.name}={each.value}" for each in browser.cookies.jar)
        async with connect(
            f"wss://localhost:{self.port}/admin/live/", ssl=self.tls, proxy=None,
            additional_headers={"Cookie": cookies}, origin=Origin(REFERER["Referer"].rstrip("/")),
        ) as socket:  # fmt: skip
            told: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), 20))
        return told

    def browser(self) -> httpx.Client:
        """What a browser is to the console."""
        return self._stack.enter_context(
            httpx.Client(
                base_url=f"https://localhost:{self.port}", verify=self.tls, trust_env=False,
                follow_redirects=True, timeout=30,
            )
        )  # fmt: skip


def log_in(browser: httpx.Client, name: str, password: str) -> None:
    """Enter the console."""
    form = browser.get("/login/?next=/admin/")
    answer = browser.post(
        str(form.url),
        data={"username": name, "password": password, "csrfmiddlewaretoken": token_of(form)},
        headers=REFERER,
    )
    assert answer.url.path == "/admin/", answer.text


def token_of(page: httpx.Response) -> str:
    """What a form of the page has to be sent with."""
    found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
    assert found, page.text
    return found[1]
