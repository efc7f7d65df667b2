"""The playground of runtimes: what is composed of the schemas, and a conversation in a browser."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from msgnode.console import roles
from msgnode.console.runtimes import composed
from msgnode.ops.asyncapi import document
from tests import waiting
from tests.accessibility import axe_faults
from tests.node import Node

from . import window
from .browser import operated_node

LIMIT = 40_000  # ms, on a machine that has other things to do
SCHEMA = Path(__file__).parents[2] / "msgnode/static/msgnode/live/schema.js"
FAULTS = """
const { faults, fields } = await import(process.argv[1]);
const asked = JSON.parse((await import("node:fs")).readFileSync(0, "utf8"));
console.log(JSON.stringify(asked.map(({ schema, value }) => ({
  faults: faults(schema, value), fields: fields(schema).map(({ path }) => path.join(".")) }))));
"""
OPEN = "document.querySelectorAll('#runtime-list li[data-state=open][data-tracing=true]').length"


def validator(schema: dict[str, Any]) -> Any:
    import jsonschema  # takes seconds for the grammar of URIs: not while tests are collected

    return jsonschema.Draft7Validator(schema)


def messages() -> dict[str, dict[str, Any]]:
    plain = json.loads(json.dumps(document()))
    return {each["name"]: each for each in composed(plain)}


def test_all_that_a_runtime_may_say_is_there_with_its_schema_in_one_piece() -> None:
    known = messages()
    assert set(known) == {
        "open", "reopen", "close", "allocate", "release", "subscribe", "unsubscribe", "message",
        "response",
    }  # fmt: skip
    assert "$ref" not in json.dumps(known)
    for each in known.values():
        validator(each["schema"]).validate(each["example"])


def test_the_page_finds_the_faults_that_a_validator_finds(nodejs: str) -> None:
    known = messages()
    changes: list[dict[str, Any]] = [
        {}, {"type": "nonsense"}, {"type": 1}, {"to": ""}, {"to": []}, {"to": ["a", 2]},
        {"body": {}}, {"body": 1}, {"body": {"resource": 1}}, {"body": {"resources": []}},
        {"body": {"scheme": 1}}, {"body": {"value": {"number": -1}}},
        {"body": {"value": {"number": 1.5}}}, {"body": {"value": {"number": 10**9}}},
        {"body": {"value": {"allocationKey": "k" * 9999}}}, {"id": []}, {"id": "x"},
    ]  # fmt: skip
    asked = [
        {"schema": each["schema"], "value": {**each["example"], **change}}
        for each in known.values()
        for change in changes
    ]
    done = subprocess.run(
        [nodejs, "--no-warnings", "--input-type=module", "-e", FAULTS, SCHEMA.as_uri()],
        input=json.dumps(asked), capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for each, said in zip(asked, json.loads(done.stdout), strict=True):
        is_right = validator(each["schema"]).is_valid(each["value"])
        assert (said["faults"] == []) == is_right, (each["value"], said["faults"])
    of_allocation = next(
        said["fields"]
        for each, said in zip(asked, json.loads(done.stdout), strict=True)
        if each["schema"] == known["allocate"]["schema"]
    )
    assert {"to", "body.scheme", "body.value.number"} <= set(of_allocation)


@pytest.mark.django_db
def test_who_sees_sessions_is_let_in(client: Client) -> None:
    user = User.objects.create_user("somebody", is_staff=True)
    client.force_login(user)
    assert client.get("/admin/runtimes/").status_code == 403
    user.groups.add(Group.objects.get(name=roles.VIEWER))
    page = client.get("/admin/runtimes/").content.decode()
    assert "compose-try" in page
    client.logout()
    assert client.get("/admin/runtimes/").status_code == 302


@pytest.fixture
def node(tmp_path: Path, template: Path) -> Iterator[Node]:
    with operated_node(tmp_path, template) as node:
        yield node


@pytest.mark.long
def test_two_runtimes_talk_in_the_browser_and_each_step_is_explained(
    node: Node, chromium: str, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    policies = tmp_path / "policies.json"
    rule = {"id": "no-secrets", "effect": "deny", "condition": {"msgTo": {"like": "*/secret"}}}
    policies.write_text(
        json.dumps([{"id": "S", "mode": "enforce", "policies": [{"id": "P", "rules": [rule]}]}])
    )
    node.publish(policies, "--mode", "enforce")
    with window.opened(chromium) as chromium_window:
        page = window.operator_page(chromium_window, node.port)
        page.set_default_timeout(LIMIT)
        page.goto("/admin/runtimes/")
        page.get_by_role("button", name="Open a runtime").click()
        page.get_by_role("button", name="Open a runtime").click()
        waiting.in_page(page, f"{OPEN} === 2")
        passed = page.locator("#passed > li")
        send = page.get_by_role("button", name="Send", exact=True)

        page.select_option("#compose-message", "allocate")
        page.fill("[data-path='body.scheme']", "comm")
        page.fill("[data-path='body.value.number']", "2")
        expect(page.locator("#compose-faults")).to_have_text(
            "The message matches its schema.", timeout=LIMIT
        )
        send.click()
        asked = passed.filter(has_text="Runtime 1 → node create to").first
        expect(asked).to_contain_text("address-allocation of the node answers it", timeout=LIMIT)
        expect(asked).to_contain_text("Answered 200", timeout=LIMIT)

        second = page.locator("#runtime-list code").nth(1).inner_text()
        page.select_option("#compose-message", "message")
        page.fill("[data-path=type]", "read")
        page.fill("[data-path=to]", second)
        send.click()
        page.get_by_role("button", name="Answer it").click()
        expect(page.locator("#compose-sender")).to_have_value("Runtime 2", timeout=LIMIT)
        send.click()
        asked = passed.filter(has_text=f"Runtime 1 → node read to {second}").first
        expect(asked).to_contain_text(f"delivered to 1 listener: {second}", timeout=LIMIT)
        expect(asked).to_contain_text("Answered 200", timeout=LIMIT)

        page.select_option("#compose-sender", "Runtime 1")
        page.select_option("#compose-message", "message")
        page.fill("[data-path=to]", "comm://localhost/a/secret")
        send.click()
        refused = passed.filter(has_text="update to comm://localhost/a/secret").first
        expect(refused).to_contain_text(
            "The policies decide deny on its way in by S/P/no-secrets", timeout=LIMIT
        )
        expect(refused).to_contain_text("what 403 means", timeout=LIMIT)

        page.fill("#compose-json", '{"type": "read", "to": 7}')
        expect(page.locator("#compose-faults")).to_contain_text("from is missing", timeout=LIMIT)
        first = page.locator("#runtime-list li").first
        first.get_by_role("button", name="Drop the connection").click()
        expect(first).to_contain_text("dropped", timeout=LIMIT)
        first.get_by_role("button", name="Reconnect").click()
        waiting.in_page(page, f"{OPEN} === 2")
        resumed = passed.filter(has_text="node re-open to mn:/session").first.locator("pre")
        expect(resumed).to_contain_text("/<token>")  # and not the token itself
        for theme, width in (("light", 1440), ("dark", 390)):
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size({"width": width, "height": 900})
            assert axe_faults(page, "serious", "critical") == []
        first.get_by_role("button", name="Close the session").click()
        expect(page.locator("#runtime-list li")).to_have_count(1, timeout=LIMIT)
        assert page.faults == []
        page.close()
