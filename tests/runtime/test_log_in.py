"""Log-in at a node's own OpenID provider under `strict`, with renewals, in Node.js and in Python.

The test is the person's browser: it opens the address that the runtime shows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.node import Node, running
from tests.production import token_of
from tests.runtime import started

pytestmark = pytest.mark.long

SECONDS = 5
MAKE = """
from django.contrib.auth.models import User
from oauth2_provider.models import get_application_model
User.objects.create_user("bob", "bob@localhost", "wonderland 7")
get_application_model().objects.create(
    client_id="native", name="native", client_type="public",
    authorization_grant_type="authorization-code", redirect_uris="http://127.0.0.1/",
    skip_authorization=True, algorithm="RS256",
)
print("made")
"""


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    place = tmp_path_factory.mktemp("strict")
    with running(place, template, ADMISSION="strict", ID_TOKEN_SECONDS=SECONDS) as node:
        assert "made" in node.manage("shell", "-c", MAKE)
        yield node


@contextmanager
def persons_browser(origin: str) -> Iterator[httpx.Client]:
    """A browser in which Bob is logged in at the node."""
    with httpx.Client(base_url=origin, follow_redirects=True) as browser:
        form = browser.get("/login/")
        fields = {"username": "bob", "password": "wonderland 7"}
        headers = {"Referer": str(form.url)}
        data = {**fields, "csrfmiddlewaretoken": token_of(form)}
        browser.post(str(form.url), data=data, headers=headers)
        yield browser


@pytest.mark.parametrize("kind", ["nodejs", "python"])
def test_a_log_in_is_renewed_over_three_expiries_and_ends_with_the_log_out(
    kind: str, strict: Node
) -> None:
    issuer = httpx.get(f"http://127.0.0.1:{strict.port}/o/.well-known/openid-configuration").json()[
        "issuer"
    ]
    options: dict[str, Any] = {
        "domain": "localhost",
        "catalogues": {"localhost": f"http://127.0.0.1:{strict.port}"},
        "issuer": issuer,
    }
    with (
        persons_browser(issuer.removesuffix("/o")) as browser,
        started.process("log_in", kind, options) as runtime,
    ):
        answer = browser.get(runtime.first["open"])
        assert answer.text == "You are logged in. This page may be closed.", answer.url
        said = runtime.order()
        assert said["user"] == "user://localhost/bob@localhost", said
        end = time.monotonic() + 3.4 * SECONDS
        asked = 0
        while time.monotonic() < end:
            said = runtime.order(do="ask")
            assert said["answer"] == "hello", said
            asked += 1
            time.sleep(0.5)
        assert asked > 10
        states = said["states"]
        assert states[0] == "logged-in" and states.count("renewed") >= 3, states
        said = runtime.order(do="logOut")
        assert said["states"][-1] == "logged-out" and said["user"] == ""
        assert runtime.order(do="anonymous")["refused"], "strict lets nobody in without a log-in"


@pytest.mark.parametrize("kind", ["nodejs", "python"])
def test_what_the_node_does_not_accept_is_refused_with_its_reason(kind: str, strict: Node) -> None:
    options: dict[str, Any] = {
        "domain": "localhost",
        "catalogues": {"localhost": f"http://127.0.0.1:{strict.port}"},
        "identity": {"accessToken": "nonsense"},
    }
    with started.process("log_in", kind, options) as runtime:
        assert json.dumps(runtime.first).count("token") and runtime.first["code"] in (401, 503)
