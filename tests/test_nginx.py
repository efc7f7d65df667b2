"""The nginx configuration of deploy/, run with a real nginx in front of a real node.

nginx comes from PATH or from NGINX; where there is none the test says so and is skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.certificates import certificate
from tests.node import ROOT, Node, free_port
from tests.production import nginx_configuration
from tests.waiting import until

pytestmark = pytest.mark.long

NGINX = os.environ.get("NGINX") or shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
needs_nginx = pytest.mark.skipif(
    NGINX is None, reason="no nginx: install one (apt-get install nginx-light) or name it in NGINX"
)


class Front:
    def __init__(self, node: Node, port: int, http: int, place: Path) -> None:
        self.node, self.port, self.http, self.place = node, port, http, place
        self.tls = ssl.create_default_context(cafile=str(place / "fullchain.pem"))

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(f"https://localhost:{self.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20, context=self.tls) as answer:  # noqa: S310
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()


@pytest.fixture
def front(tmp_path: Path, start_node: Callable[..., Node]) -> Iterator[Front]:
    place = tmp_path / "nginx"
    place.mkdir()
    certificate(place)
    node = start_node(PROXIES=1, ALLOWED_HOSTS="localhost")
    http, https = free_port(), free_port()
    (place / "nginx.conf").write_text(
        nginx_configuration(place, (node.port, free_port(), free_port()), http, https)
    )
    process = subprocess.Popen([str(NGINX), "-p", str(place), "-c", str(place / "nginx.conf")])
    try:
        found = Front(node, https, http, place)

        def answers() -> bool:
            assert process.poll() is None, (place / "error.log").read_text()
            with suppress(urllib.error.URLError):
                return bool(found.get("/"))
            return False

        until(answers, 30)
        yield found
    finally:
        process.terminate()
        process.wait(10)


@needs_nginx
def test_runtimes_pages_and_registry_pass_and_the_client_is_known(front: Front) -> None:
    url = f"wss://localhost:{front.port}/ws"
    with connect(url, ssl=front.tls, additional_headers={"X-Forwarded-For": "203.0.113.9"}) as ws:
        opening = {"id": 1, "type": "open", "from": "runtime://localhost/n", "to": "mn:/session"}
        ws.send(json.dumps(opening))
        assert json.loads(ws.recv(20))["body"]["code"] == 200
        came_from = front.node.rows("SELECT remote_address FROM msgnode_session")
        assert came_from == [("127.0.0.1",)]  # not invented
    code, text = front.get("/")
    assert code == 200
    assert f"wss://localhost:{front.port}/ws" in text or "wss://localhost/ws" in text
    entry = "hyperty://localhost/through/nginx"
    encoded = urllib.request.quote(entry, safe="")  # type: ignore[attr-defined]
    _register(front, entry, encoded)
    code, text = front.get(f"/domain-registry/hyperty/url/{encoded}")
    assert (code, json.loads(text)["hypertyID"]) == (200, entry)
    assert front.get("/metrics")[0] == 200  # from this machine
    assert "access_token" not in (front.place / "access.log").read_text()


def _register(front: Front, entry: str, encoded: str) -> None:
    body = {"descriptor": "d", "resources": [], "dataSchemes": [], "status": "live",
            "expires": 60, "runtime": "runtime://localhost/n"}  # fmt: skip
    request = urllib.request.Request(
        f"https://localhost:{front.port}/domain-registry/hyperty/user/user%3A%2F%2Fl%2Fa/{encoded}",
        json.dumps(body).encode(), {"Content-Type": "application/json"}, method="PUT",
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=20, context=front.tls) as answer:  # noqa: S310
        assert answer.status == 200


@needs_nginx
def test_plain_http_is_sent_to_tls(front: Front) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{front.http}/x", headers={"Host": "localhost"}
    )

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    with pytest.raises(urllib.error.HTTPError) as sent:
        urllib.request.build_opener(Stay).open(request, timeout=20)
    assert (sent.value.code, sent.value.headers["Location"]) == (301, "https://localhost/x")


def test_the_configuration_names_what_the_node_needs() -> None:
    """Where no nginx is: the lines without which a node behind it goes wrong."""
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    for line in (
        "merge_slashes off;", "proxy_pass http://node;", "proxy_pass http://web;",
        "proxy_http_version 1.1;",
        "proxy_set_header X-Forwarded-For   $remote_addr;",
        "proxy_set_header X-Forwarded-Proto $scheme;", "proxy_set_header Upgrade",
    ):  # fmt: skip
        assert line in text, line
    assert not re.search(r"proxy_pass http://\w+/", text)
