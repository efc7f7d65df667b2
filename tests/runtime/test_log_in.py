"""Log-in at a node's own OpenID provider under `strict`, in Node.js, in Python and in a page.

For the former two the test is the person's browser, which opens the address that the runtime shows;
the page leaves for the provider and comes back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import waiting
from tests.node import ROOT, Node, running
from tests.production import token_of
from tests.runtime import started
from tests.runtime.pages import served

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
REGISTER = """
from oauth2_provider.models import get_application_model
get_application_model().objects.create(
    client_id="page", name="page", client_type="public",
    authorization_grant_type="authorization-code", redirect_uris="{page}",
    skip_authorization=True, algorithm="RS256",
)
print("registered")
"""
FORGET = """
from msgnode.models import Session
print(Session.objects.all().delete()[0], "forgotten")
"""
START = """(options) => {
  window.order = (async ({ issuer, ...rest }) => {
    const { Runtime } = await import("/msgnode/runtime/js/src/index.js");
    const { openid } = await import("/msgnode/runtime/js/src/openid.js");
    const { orders } = await import("/tests/runtime/log_in.mjs");
    const runtime = new Runtime(rest);
    const states = [];
    runtime.onIdentity(({ state }) => states.push(state));
    await runtime.logIn(openid({ issuer, clientId: "page" }));
    return orders(runtime, states);
  })(options);
}"""
PAGE = "msgnode/runtime/js/tests/browser/index.html"


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


Order = Callable[[str], dict[str, Any]]


@contextmanager
def logged_in(kind: str, node: Node, browser: Any) -> Iterator[Order]:
    """A runtime of a kind in which Bob has logged in at the node; it takes orders."""
    origin = f"http://127.0.0.1:{node.port}"
    issuer = httpx.get(f"{origin}/o/.well-known/openid-configuration").json()["issuer"]
    catalogues = {"localhost": origin}
    options: dict[str, Any] = {"domain": "localhost", "catalogues": catalogues, "issuer": issuer}
    often = {"maxDelay": 1_000} if kind == "nodejs" else {"max_delay": 1.0}  # the node is tried
    if kind != "chromium":
        options["stubConfig" if kind == "nodejs" else "stub_config"] = {"localhost": often}
    if kind == "chromium":
        with in_a_page(node, browser, options) as order:
            yield order
        return
    with (
        persons_browser(issuer.removesuffix("/o")) as person,
        started.process("log_in", kind, options) as runtime,
    ):
        answer = person.get(runtime.first["open"])
        assert answer.text == "You are logged in. This page may be closed.", answer.url
        yield lambda what: runtime.order(do=what)


@contextmanager
def in_a_page(node: Node, browser: Any, options: dict[str, Any]) -> Iterator[Order]:
    """The page leaves for the provider, the person logs in there, and it is back."""
    with served(ROOT) as url:
        assert "registered" in node.manage("shell", "-c", REGISTER.format(page=f"{url}/{PAGE}"))
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(30_000)
        try:
            page.goto(f"{url}/{PAGE}")
            page.evaluate(START, options)
            page.wait_for_url("**/login/**")
            page.fill("[name=username]", "bob")
            page.fill("[name=password]", "wonderland 7")
            page.press("[name=password]", "Enter")
            page.wait_for_url(f"{url}/**")
            assert "code=" in page.url
            page.evaluate(START, options)
            page.evaluate("window.order.then(() => {})")
            assert page.url == f"{url}/{PAGE}", "the answer is no part of the address any more"
            yield lambda what: dict(
                page.evaluate("async (what) => (await window.order)(what)", what)
            )
        finally:
            context.close()


@pytest.mark.parametrize("kind", ["nodejs", "python", "chromium"])
def test_a_log_in_is_renewed_over_three_expiries_and_ends_with_the_log_out(
    kind: str, strict: Node, browser: Any
) -> None:
    with logged_in(kind, strict, browser) as order:
        said = order("say")
        assert said["user"] == "user://localhost/bob@localhost", said
        end = time.monotonic() + 3.4 * SECONDS
        asked = 0
        while time.monotonic() < end:
            said = order("ask")
            assert said["answer"] == "hello", said
            asked += 1
            time.sleep(0.5)
        assert asked > 10
        states = said["states"]
        assert states[0] == "logged-in" and states.count("renewed") >= 3, states
        said = order("logOut")
        assert said["states"][-1] == "logged-out" and said["user"] == ""
        assert order("anonymous")["refused"], "strict lets nobody in without a log-in"


@pytest.mark.parametrize("kind", ["nodejs", "python"])
def test_a_log_in_that_ends_while_the_node_is_away_is_renewed_when_it_is_back(
    kind: str, tmp_path: Path, template: Path
) -> None:
    with running(tmp_path, template, ADMISSION="strict", ID_TOKEN_SECONDS=SECONDS) as node:
        assert "made" in node.manage("shell", "-c", MAKE)
        with logged_in(kind, node, None) as order:
            assert order("ask")["answer"] == "hello"
            node.kill()
            waiting.until(lambda: len(order("say")["states"]) >= 3, 6 * SECONDS)
            node.start()
            said = order("ask")
            assert said["answer"] == "hello", "it ended after the first of the failures"
            waiting.until(lambda: "renewed" in order("say")["states"], SECONDS)
            states = order("say")["states"]
            failures = states[1 : states.index("renewed")]  # two, or more while the node starts
            assert states[0] == "logged-in"
            assert len(failures) >= 2 and set(failures) == {"failed"}  # noqa: PT018

            node.kill()
            assert "forgotten" in node.manage("shell", "-c", FORGET)
            node.start()
            said = order("ask")
            assert said["answer"] == "hello", "a session that is opened anew is bound to him, too"
            assert said["user"] == "user://localhost/bob@localhost"


@pytest.mark.parametrize("kind", ["nodejs", "python"])
def test_what_the_node_does_not_accept_is_refused_with_its_reason(kind: str, strict: Node) -> None:
    options: dict[str, Any] = {
        "domain": "localhost",
        "catalogues": {"localhost": f"http://127.0.0.1:{strict.port}"},
        "identity": {"accessToken": "nonsense"},
    }
    with started.process("log_in", kind, options) as runtime:
        assert json.dumps(runtime.first).count("token") and runtime.first["code"] in (401, 503)
