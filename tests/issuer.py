"""An OpenID issuer over real HTTP on this machine, and a node that believes it.

The issuer's keys, its answers and whether it answers at all are in the test's hand; it counts what
it was asked.
"""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from joserfc import jwk, jwt

from tests.node import Node, running

AUDIENCE = "the-node"
IDP = "idp.test"


class Issuer:
    """An issuer under `http://127.0.0.1:<port>`; `domain` is what its identities say in idp."""

    def __init__(self, domain: str = IDP) -> None:
        self.domain = domain
        self.asked: Counter[str] = Counter()
        self.is_up = True
        self.gate = threading.Event()  # requests wait for it
        self.gate.set()
        self.opaque: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, jwk.RSAKey] = {}
        self.published: list[str] = []
        self.rotate("k1")
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.answer(self)

            def do_POST(self) -> None:
                issuer.answer(self)

            def log_message(self, *_: object) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.keys_at = self.url  # where its discovery document says that they are
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked[handler.path] += 1
        length = int(handler.headers.get("Content-Length") or 0)
        sent = parse_qs(handler.rfile.read(length).decode())
        self.gate.wait(30)
        if not self.is_up:
            handler.send_error(503)
            return
        form = {name: values[0] for name, values in sent.items()}
        status, answer = self.answer_to(handler.path, form, handler.headers)
        content = json.dumps(answer).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def answer_to(self, path: str, form: dict[str, str], headers: Any) -> tuple[int, Any]:
        """Status and JSON of an answer; others of the field add theirs."""
        if path == "/.well-known/openid-configuration":
            return 200, {"issuer": self.url, "jwks_uri": f"{self.keys_at}/jwks"}
        if path == "/jwks":
            listed = [self.keys[kid].as_dict(private=False, kid=kid) for kid in self.published]
            return 200, {"keys": listed}
        claims = self.opaque.get(form.get("token", ""))
        return 200, {"active": True, **claims} if claims else {"active": False}

    # --- keys and tokens --------------------------------------------------------------------------

    def rotate(self, kid: str) -> None:
        """A new key, published beside the others."""
        self.keys[kid] = _key(len(self.keys))
        self.published.append(kid)

    def claims(self, user: str = "alice", **claims: Any) -> dict[str, Any]:
        """Good claims of a user, changed as told; None takes one out."""
        now = int(time.time())
        good = {
            "iss": self.url,
            "sub": f"sub-{user}",
            "aud": AUDIENCE,
            "exp": now + 3600,
            "iat": now - 5,
            "email": f"{user}@{self.domain}",
            "email_verified": True,
            "jti": uuid.uuid4().hex,
        }
        return {name: value for name, value in {**good, **claims}.items() if value is not None}

    def token(
        self,
        user: str = "alice",
        kid: str | None = "k1",
        key: Any = None,
        alg: str = "RS256",
        **claims: Any,
    ) -> str:
        head = {"alg": alg} if kid is None else {"alg": alg, "kid": kid}
        signer = key or self.keys[kid or "k1"]
        return jwt.encode(head, self.claims(user, **claims), signer, algorithms=[alg])

    def identity(self, user: str = "alice", token: str = "", **more: Any) -> dict[str, Any]:
        """An identity object of the field: the token in a Base64 wrapper."""
        wrapper = {"tokenID": token or self.token(user), "tokenIDJSON": {"exp": "1700000000"}}
        profile = {"userURL": f"user://{self.domain}/{user}@{self.domain}", "cn": user}
        return {
            "assertion": base64.b64encode(json.dumps(wrapper).encode()).decode(),
            "idp": {"domain": self.domain, "protocol": "OIDC"},
            "userProfile": profile,
            "expires": 99999999999,
            **more,
        }

    def row(self, **fields: Any) -> dict[str, Any]:
        """The issuer as a row of the node's database."""
        return {
            "name": self.domain,
            "kind": "external",
            "url": self.url,
            "aliases": "",
            "domains": self.domain,
            "audiences": AUDIENCE,
            "algorithms": "RS256\nES256",
            "jwks_url": "",
            "jwks": "",
            "introspection_url": f"{self.url}/introspect",
            "client_id": "",
            "client_secret": "",
            "is_enabled": True,
            "changed_at": "2026-01-01 00:00:00",
            **fields,
        }


def enter(database: Path, *rows: dict[str, Any], changed: bool = False) -> None:
    """Write issuers into a node's database; `changed` tells a running node."""
    with closing(sqlite3.connect(database, timeout=20)) as connection, connection:
        for row in rows:
            names = ", ".join(row)
            marks = ", ".join("?" * len(row))
            sql = f"INSERT OR REPLACE INTO msgnode_issuer ({names}) VALUES ({marks})"  # noqa: S608
            connection.execute(sql, list(row.values()))
    if changed:
        tell(database, "issuers.changed")


def tell(database: Path, kind: str, **payload: Any) -> None:
    """Leave a control message for a running node."""
    now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    with closing(sqlite3.connect(database, timeout=20)) as connection, connection:
        connection.execute(
            "INSERT INTO msgnode_controlmessage (kind, payload, created_at) VALUES (?, ?, ?)",
            (kind, json.dumps(payload), now),
        )


_made: list[jwk.RSAKey] = []


def _key(number: int) -> jwk.RSAKey:
    """RSA keys, made once a test run: each takes a tenth of a second."""
    while len(_made) <= number:
        _made.append(jwk.RSAKey.generate_key(2048))
    return _made[number]


@pytest.fixture
def make_issuer() -> Iterator[Any]:
    """Issuers of a test's own."""
    made: list[Issuer] = []

    def make(domain: str = "") -> Issuer:
        made.append(Issuer(domain or f"idp{uuid.uuid4().hex[:8]}.test"))
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.fixture(scope="session")
def issuer() -> Iterator[Issuer]:
    """The issuer of the shared node; tests leave it up, with its first key."""
    shared = Issuer()
    yield shared
    shared.stop()


@pytest.fixture(scope="session")
def idnode(
    tmp_path_factory: pytest.TempPathFactory, template: Path, issuer: Issuer
) -> Iterator[Node]:
    """A node that believes `issuer`. The mode is chosen by the domain of the runtime URL:
    localhost is anonymous, identified.test and strict.test are what they say.

    Tests may enter issuers of their own, with `introspection_url=""`: one that is asked about every
    token, and has ended with its test, would have unknown tokens answered 503 from then on.
    """
    place = tmp_path_factory.mktemp("idnode")
    rows = place / "rows.sqlite3"
    shutil.copy(template, rows)
    enter(rows, issuer.row())
    settings = {
        "ADMISSION_DOMAINS": "identified.test=identified,strict.test=strict",
        "IDENTITY_PASSES_UNKNOWN": "false",
    }
    with running(place / "node", rows, **settings) as shared:
        yield shared
        assert shared.is_running(), shared.log()
