"""An operator logs in with a real browser: passkeys of its virtual authenticator, the company's
issuer as `oidc-provider` plays it, and another node's provider.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.accessibility import axe_faults
from tests.node import ROOT, Node
from tests.ports import free_port
from tests.services import NotAvailable, miss

from .browser import PASSWORD, operated_node
from .test_every_page import WIDER

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

MODULES = ROOT / ".ci" / "js" / "node_modules"
AUTHENTICATOR = {
    "protocol": "ctap2", "transport": "internal", "hasResidentKey": True,
    "hasUserVerification": True, "isUserVerified": True, "automaticPresenceSimulation": True,
}  # fmt: skip
COMPANY = """
from django.contrib.auth.models import Group
from msgnode.identity.encryption import encrypt
from msgnode.models import Issuer
row = Issuer.objects.create(name={name!r}, url={url!r}, client_id="the-node",
    client_secret=encrypt("s:ecret 7"), logs_in_operators=True, groups_claim={claim!r})
row.roles.create(group={group!r}, role=Group.objects.get(name="operator"))
print("pk", row.pk)
"""
CLIENT = """
from django.contrib.auth.models import User
from oauth2_provider.models import Application
User.objects.create_user("dora", password="let me in 7")
Application.objects.create(client_id="the-node", client_secret="s:ecret 7",
    client_type="confidential", authorization_grant_type="authorization-code",
    redirect_uris={back!r}, skip_authorization=True, algorithm="RS256")
"""
FOUND = """
from django.contrib.auth.models import User
from msgnode.models import AuditEntry
for user in User.objects.exclude(username="operator"):
    print(user.username, *user.groups.values_list("name", flat=True))
print(*AuditEntry.objects.order_by("id").values_list("action", flat=True))
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    with operated_node(tmp_path_factory.mktemp("log-in"), template) as node:
        yield node


@pytest.fixture
def page(node: Node, chromium_window: Any) -> Iterator[Any]:
    context = chromium_window.new_context(base_url=f"http://localhost:{node.port}")
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.said = []
    page.on("console", lambda each: page.said.append(each.text))
    page.on("pageerror", lambda error: page.said.append(f"Content Security: {error}"))
    yield page
    assert [each for each in page.said if "Content Security" in each] == []
    context.close()


def look(page: Any, place: str) -> None:
    """Nothing for axe to find, nothing wider than the window: wide and narrow, light and dark."""
    faults = []
    for scheme, width in (("light", 1440), ("dark", 390)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        faults += [f"{scheme}: {each}" for each in axe_faults(page)]
        faults += [each for each in [page.evaluate(WIDER)] if each]
    assert faults == [], place


def password(page: Any) -> None:
    page.goto("/admin/login/")
    page.fill("[name=username]", "operator")
    page.fill("[name=password]", PASSWORD)
    page.press("[name=password]", "Enter")


def test_a_passkey_is_made_and_logs_in_with_and_without_a_password(page: Any, node: Node) -> None:
    keys = page.context.new_cdp_session(page)
    keys.send("WebAuthn.enable")
    authenticator = keys.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
    password(page)
    page.wait_for_url("**/admin/")
    page.goto("/admin/log-ins/")
    before = page.locator("#log-ins tbody tr").count()  # other tests share the node
    page.goto("/login/own/")
    page.click("text=Set up an app")
    look(page, "app")
    page.goto("/login/own/passkey/")
    look(page, "passkey")
    page.fill("[name=name]", "laptop")
    page.press("[name=name]", "Enter")
    page.wait_for_selector("#codes")
    look(page, "codes")
    recovery = page.inner_text("#codes").split()
    page.click("text=I have them; continue")
    page.wait_for_selector("text=laptop")
    look(page, "own")

    page.context.clear_cookies()
    password(page)
    page.wait_for_url("**/login/second/")
    look(page, "second step")
    page.goto("/admin/")
    assert "/admin/login/" in page.url
    page.goto("/login/second/")
    page.click("text=Use a passkey")
    page.wait_for_url("**/admin/")

    page.goto("/admin/msgnode/webhookhost/add/")
    page.fill("[name=host]", "hooks.example.org")
    page.click("[name=_save]")
    page.wait_for_selector("text=was added successfully")
    page.goto("/admin/log-ins/")
    look(page, "log-ins")
    assert page.locator("#log-ins tbody tr").count() == before + 1
    page.locator("#log-ins button").first.click()
    page.wait_for_selector("text=is logged out of that browser")

    page.context.clear_cookies()
    page.goto("/admin/login/?next=/admin/msgnode/ban/")
    look(page, "log-in")
    page.click("text=Log in with a passkey")
    page.wait_for_url("**/admin/msgnode/ban/")

    page.context.clear_cookies()
    keys.send("WebAuthn.setUserVerified", {**authenticator, "isUserVerified": False})
    page.goto("/admin/login/")
    page.click("text=Log in with a passkey")
    page.wait_for_selector("text=Nothing was chosen")
    keys.send("WebAuthn.removeVirtualAuthenticator", authenticator)
    password(page)
    page.wait_for_url("**/login/second/")
    page.fill("[name=code]", recovery[0])
    page.press("[name=code]", "Enter")
    page.wait_for_url("**/admin/")
    page.goto("/login/own/")
    page.click("[aria-label='Remove laptop']")
    page.wait_for_selector("text=alone lets you in")
    told = node.manage("shell", "-v0", "-c", FOUND).split()
    for action in ("second-factor.add", "second-factor.recovery", "second-factor.remove",
                   "webhookhost.add", "log-in.end"):  # fmt: skip
        assert action in told


@contextmanager
def provider(nodejs: str, place: Path, port: int, redirect: str) -> Iterator[Path]:
    """oidc-provider at a port, and the file of its people."""
    if not (MODULES / "oidc-provider").exists():
        miss(NotAvailable("no oidc-provider: .ci/js/lint installs it"))
    people = place / "people.json"
    program = Path(__file__).with_name("oidc_provider.mjs")
    command = [nodejs, program, MODULES, str(port), redirect, people]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == b"listening\n"
            yield people
        finally:
            running.kill()


def enter(node: Node, **issuer: str) -> int:
    """An issuer in the node's database; its key."""
    return int(node.manage("shell", "-v0", "-c", COMPANY.format(**issuer)).split()[-1])


def test_operators_log_in_at_oidc_provider_and_lose_the_role_with_the_group(
    page: Any, node: Node, nodejs: str, tmp_path: Path
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    pk = enter(node, name="The company", url=url, claim="groups", group="node-ops")
    back = f"http://localhost:{node.port}/login/with/{pk}/back/"
    with provider(nodejs, tmp_path, port, back) as people:

        def log_in() -> None:
            page.context.clear_cookies()
            page.goto("/admin/login/?next=/admin/msgnode/session/")
            page.click("text=Log in with The company")
            page.fill("[name=login]", "alice")
            page.fill("[name=password]", "anything")
            page.click("button[type=submit]")
            page.wait_for_selector("text=Authorize")
            page.click("button[type=submit]")

        people.write_text(json.dumps({"alice": {"name": "Alice L.", "groups": ["node-ops"]}}))
        log_in()
        page.wait_for_url(f"http://localhost:{node.port}/admin/msgnode/session/")
        assert "alice@127.0.0.1 operator" in node.manage("shell", "-v0", "-c", FOUND)
        people.write_text(json.dumps({"alice": {"groups": ["others"]}}))
        log_in()
        page.wait_for_selector("text=has a role here any more")
        look(page, "refused")
        told = node.manage("shell", "-v0", "-c", FOUND).splitlines()
        assert "alice@127.0.0.1" in told
        page.goto("/admin/")
        assert "/admin/login/" in page.url
