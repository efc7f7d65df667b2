"""The page `/` with a second node: the message between two domains, and calls with sound."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client

from tests.accessibility import axe_faults
from tests.node import Node, running
from tests.runtime.test_invitations import token_of
from tests.stubs.conftest import FLAGS

pytestmark = pytest.mark.timeout(240)  # the first of them starts two nodes and a browser

DESKTOP = {"viewport": {"width": 1280, "height": 900}}
INVITING = {"INVITATIONS": True, "CONTACT_CARDS": "*", "WEBHOOK_NETWORKS": "127.0.0.0/8,::1/128"}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}

LOGGED_IN = """if (window === top) sessionStorage.setItem("node.tokens", JSON.stringify({
    name: "somebody", token: "TOKEN", idToken: "", until: Date.now() + 3_600_000,
}))"""


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """With a microphone that beeps."""
    from playwright.sync_api import sync_playwright

    fake = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=chromium, args=[*FLAGS, *fake])
        yield opened
        opened.close()


def origin(node: Node) -> str:
    return f"http://localhost:{node.port}"


def test_the_page_may_ask_the_node_that_its_address_names_and_no_other(client: Client) -> None:
    def asked(said: str) -> str:
        policy = client.get("/", {"with": said})["Content-Security-Policy"]
        return str(next(each for each in policy.split("; ") if each.startswith("connect-src")))

    alone = "connect-src 'self' ws://testserver"
    assert asked("") == alone
    assert asked("b.example@https://b.example:8443/") == f"{alone} https://b.example:8443"
    for bad in (
        *("*", "b@*", "b@https://b.example; script-src *", "b@javascript:x", "b@http://b/x"),
        *("b@https://b\nX: y", "@https://b", "b@https://", "b@http://u:p@b", "b@" + "x" * 999),
    ):
        assert asked(bad) == alone, bad
    text = client.get("/", {"with": 'b"><script>@http://b'}).content.decode()
    assert "b&quot;" not in text
    assert "<script>@" not in text


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[tuple[Node, Node]]:
    """Nodes of two domains, for all of these tests."""
    place = tmp_path_factory.mktemp("two")
    with (
        running(place / "here", template, DOMAIN="localhost", **INVITING) as here,
        running(place / "there", template, DOMAIN="b.localhost", **INVITING) as there,
    ):
        yield here, there


@pytest.fixture(scope="module")
def tokens(two: tuple[Node, Node]) -> tuple[str, str]:
    """Alice's, who is at home at the first node, and Bob's, who is at the second one."""
    here, there = two
    return token_of(here, "alice", "localhost"), token_of(there, "bob", "b.localhost")


@contextmanager
def visit(
    browser: Any, node: Node, path: str = "", token: str = "", **context: Any
) -> Iterator[Any]:
    """A page of a node in a browser of its own; its errors fail the test.

    With an access token somebody is logged in there, as once the page has taken up a log-in.
    """
    opened = browser.new_context(permissions=["microphone"], **context)
    faults: list[str] = []
    try:
        if token:
            opened.add_init_script(LOGGED_IN.replace("TOKEN", token))
        page = opened.new_page()
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"{origin(node)}/{path}")
        yield page
    finally:
        opened.close()
    assert faults == []


def named(node: Node, domain: str) -> str:
    return f"?with={quote(f'{domain}@{origin(node)}')}"


@pytest.mark.long
@pytest.mark.parametrize("screen", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_message_between_two_domains_is_told_step_by_step(
    two: tuple[Node, Node], browser: Any, screen: dict[str, Any]
) -> None:
    here, there = two
    with visit(browser, here, named(there, "b.localhost"), **screen) as page:
        page.wait_for_selector("#hello button:enabled")
        assert page.locator("iframe[sandbox]").count() == 1  # Bob's: his home is not this page's
        page.click("#hello button")
        page.wait_for_selector("#steps .end")
        assert page.locator("iframe[sandbox]").count() == 2  # Alice's, for the other domain
        steps = page.locator("#steps li").all_inner_texts()
        told = [
            "belongs to",
            "looks for one",
            "GET /.well-known/protocolstub/default, 200",
            "sandbox",
        ]
        told += ["connects", "as a visitor", "delivers “Hello from localhost” to Bob", "comes back"]
        found = iter(steps)
        assert all(any(word in step for step in found) for word in told), steps
        assert page.inner_text("#bob-heard") == "Hello from localhost"
        page.click("#hello button")
        page.wait_for_selector("#steps .end >> nth=1")
        assert "the stub was already loaded" in page.inner_text("#steps .end >> nth=1")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= screen["viewport"]["width"]
        assert axe_faults(page) == []


def talk(one: Any, other: Any) -> None:
    """Until a thousand bytes of media have come from each to the other, as the browsers count."""
    from playwright.sync_api import expect

    for page in (one, other):
        for way in ("data-received", "data-sent"):
            expect(page.locator("#bytes")).to_have_attribute(
                way, re.compile(r"\d{4,}"), timeout=30_000
            )


def hold_what_send_gives(page: Any) -> None:
    """On what is loaded from now on: an invitation is answered after somebody has accepted it."""
    held: list[str] = []
    accepted: list[str] = []

    def pass_on(socket: Any) -> None:
        server = socket.connect_to_server()

        def receive(frame: str) -> None:
            if '"invitation"' in frame and '"response"' in frame and not accepted:
                held.append(frame)
                return
            socket.send(frame)
            if '"invitation"' in frame and '"create"' in frame:
                accepted.append(frame)
                for each in held:
                    socket.send(each)
                held.clear()

        server.on_message(receive)

    page.route_web_socket(re.compile("/ws"), pass_on)


def fits(page: Any) -> None:
    """What is seen of a call is within the screen, can be touched, and read by everybody."""
    width = page.evaluate("innerWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for button in page.locator("#call button:visible").all():
        box = button.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["height"] >= 24  # WCAG 2.2, 2.5.8
    assert axe_faults(page) == []


@pytest.mark.long
@pytest.mark.parametrize("screen", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_r69_a_callee_hosted_call_with_sound(
    two: tuple[Node, Node], browser: Any, screen: dict[str, Any]
) -> None:
    here, there = two
    with ExitStack() as stack:
        bob = stack.enter_context(visit(browser, there, named(here, "localhost"), **screen))
        bob.click("#reachable")
        bob.wait_for_selector("#mine:visible")
        link = bob.get_attribute("#my-link", "href")
        assert link.startswith(f"{origin(here)}/?with=")
        path = link.removeprefix(f"{origin(here)}/")
        alice = stack.enter_context(visit(browser, here, path, **screen))
        alice.wait_for_selector("#hello button:enabled")
        assert alice.locator("iframe[sandbox]").count() == 1  # the example's
        assert alice.input_value("#whom") == bob.inner_text("#my-address")
        alice.click("#dial button")
        bob.wait_for_selector("#asked:visible")
        bob.click("#decline")
        alice.wait_for_selector("#call-says:has-text('declined')")
        alice.click("#dial button")
        bob.wait_for_selector("#asked:visible")
        fits(bob)
        bob.click("#accept")
        talk(alice, bob)
        fits(alice)
        alice.click("#hang-up")
        for page in (alice, bob):
            page.wait_for_selector("#call-says:has-text('has ended')")
        assert alice.locator("iframe[sandbox]").count() == 2


@pytest.mark.long
def test_r70_a_caller_hosted_call_with_sound(
    two: tuple[Node, Node], tokens: tuple[str, str], browser: Any
) -> None:
    """Alice invites Bob by his name; he comes to her domain, which he had not been to before.

    At the end his page crashes, which she notices within three seconds.
    """
    from playwright.sync_api import Error

    here, there = two
    alices, bobs = tokens
    with ExitStack() as stack:
        bob = stack.enter_context(visit(browser, there, named(here, "localhost"), bobs))
        bob.wait_for_selector("#hello button:enabled")
        bob.click("#reachable")
        bob.wait_for_selector("#named:visible")
        name = bob.inner_text("#my-name")
        assert name == "bob@b.localhost"
        alice = stack.enter_context(visit(browser, here, named(there, "b.localhost"), alices))
        alice.wait_for_selector("#hello button:enabled")
        for answer in ("#decline", "#accept"):
            alice.fill("#whom", name)
            alice.click("#dial button")
            bob.wait_for_selector("#asked:visible")
            assert "alice@localhost" in bob.inner_text("#question")
            assert bob.locator("iframe[sandbox]").count() == 1  # the example's: no code of here
            bob.click(answer)
            bob.wait_for_selector("#asked", state="hidden")
        talk(alice, bob)
        assert bob.locator("iframe[sandbox]").count() == 2
        with suppress(Error):  # nobody answers that
            bob.context.new_cdp_session(bob).send("Page.crash", timeout=500)
        alice.wait_for_selector("#call-says:has-text('not heard any more')", timeout=4_000)
        alice.wait_for_selector("#call-says:has-text('has ended')")


def untold(node: Node) -> float:
    """How many withdrawals the node could not tell the invited one's node of."""
    found = re.search(r'invitations_total\{[^}]*"withdrawal_untold"\} (\S+)', node.text("/metrics"))
    return float(found[1]) if found else 0.0


@pytest.mark.long
def test_a_caller_withdraws_an_invitation_on_a_phone(
    two: tuple[Node, Node], tokens: tuple[str, str], browser: Any
) -> None:
    here, there = two
    alices, bobs = tokens
    with ExitStack() as stack:
        path = named(here, "localhost")
        bob = stack.enter_context(visit(browser, there, path, bobs, **PHONE))
        bob.click("#reachable")
        bob.wait_for_selector("#named:visible")
        path = named(there, "b.localhost")
        alice = stack.enter_context(visit(browser, here, path, alices, **PHONE))

        def invite() -> None:
            alice.fill("#whom", "bob@b.localhost")
            alice.click("#dial button")
            bob.wait_for_selector("#asked:visible")
            alice.wait_for_selector("#withdraw:visible")

        # Sent twice in a moment the form invites once more, not twice.
        invite()
        alice.evaluate("[1, 2].forEach(() => document.querySelector('#dial').requestSubmit())")
        bob.wait_for_selector("#call-says:has-text('has withdrawn the invitation')")
        bob.wait_for_selector("#asked:visible")
        alice.wait_for_selector("#call-says:has-text('is invited, for')")
        fits(alice)

        # Bob is asked no longer, and may be invited again at once.
        alice.focus("#withdraw")
        alice.keyboard.press("Enter")
        bob.wait_for_selector("#asked", state="hidden")
        bob.wait_for_selector("#call-says:has-text('has withdrawn the invitation')")
        alice.wait_for_selector("#call-says:has-text('The invitation is withdrawn.')")
        alice.wait_for_selector("#withdraw", state="hidden")
        alice.wait_for_selector("#whom:focus")

        # Bob's node is frozen: Alice is told so; who accepts all the same is told that it is over.
        before = untold(here)
        invite()
        os.kill(there.pid, signal.SIGSTOP)
        try:
            alice.click("#withdraw")
            alice.wait_for_selector("#call-says:has-text('did not answer')")
            assert bob.is_visible("#asked")
        finally:
            os.kill(there.pid, signal.SIGCONT)
        bob.evaluate("document.querySelector('#accept').click()")  # he may have been told by now
        bob.wait_for_selector("#call-says:text-matches('invitation is over|has withdrawn')")
        assert alice.is_hidden("#withdraw")
        assert alice.is_hidden("#hang-up")
        assert untold(here) == before + 1

        # She leaves the page: so does the question.
        invite()
        alice.goto(f"{origin(here)}/health/live")
        bob.wait_for_selector("#asked", state="hidden")
        bob.wait_for_selector("#call-says:has-text('has withdrawn the invitation')")


@pytest.mark.long
def test_who_accepts_before_the_callers_node_has_answered_is_let_in(
    two: tuple[Node, Node], tokens: tuple[str, str], browser: Any
) -> None:
    here, there = two
    alices, bobs = tokens
    with ExitStack() as stack:
        bob = stack.enter_context(visit(browser, there, named(here, "localhost"), bobs))
        bob.click("#reachable")
        bob.wait_for_selector("#named:visible")
        path = named(there, "b.localhost")
        alice = stack.enter_context(visit(browser, here, path, alices))
        hold_what_send_gives(alice)
        alice.reload()
        alice.fill("#whom", "bob@b.localhost")
        alice.click("#dial button")
        bob.click("#accept")
        talk(alice, bob)
