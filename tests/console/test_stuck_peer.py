"""The node of another domain hangs: what an operator sees of it in a browser, and does."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests import waiting
from tests.accessibility import axe_faults
from tests.federation.nodes import A, B, TwoNodes, come
from tests.federation.sandboxes import needs_deno

from . import window
from .browser import log_in
from .test_operator_tasks import Console
from .traffic import Traffic, talking

pytestmark = [needs_deno, pytest.mark.long, pytest.mark.timeout(240)]

SEEN_WITHIN = 60_000  # ms; twenty seconds of silence and five of waiting are the node's own
THEIRS = f"hyperty://{B}/one"
OURS, KEPT = f"hyperty://{A}/x", f"hyperty://{A}/kept"
LIMIT = 30.0
# The node or the stub may be the first to say it.
WHY = re.compile("disconnected: (the peer has not answered|The connection was lost)")


@pytest.fixture
def nodes(tmp_path: Path, template: Path) -> Iterator[TwoNodes]:
    with TwoNodes(tmp_path, template).running() as two:
        log_in(two.a)
        yield two


@pytest.fixture
def traffic(nodes: TwoNodes) -> Iterator[Traffic]:
    with talking(nodes.a) as traffic:
        yield traffic


def test_a_peer_that_is_stuck_is_found_with_two_clicks_and_what_waits_is_seen_to(
    nodes: TwoNodes, traffic: Traffic, chromium_window: Any
) -> None:
    from playwright.sync_api import expect

    asker = traffic.do(come(nodes.a, A, "asker"))
    page = window.operator_page(chromium_window, nodes.a.port)
    console = Console(page)
    os.kill(nodes.b.pid, signal.SIGSTOP)
    traffic.send(asker, 2, "read", THEIRS, {}, sender=OURS)

    alarm = page.locator("#alarms a", has_text="The node of b.example is away").first
    alarm.wait_for(timeout=SEEN_WITHIN)
    alarm.click()
    console.click("a", has_text="Messages waiting for it")
    row = page.locator("#result_list tbody tr").first
    expect(row).to_contain_text(WHY)
    expect(row).to_contain_text(THEIRS)
    assert console.clicks == 2
    assert axe_faults(page, "serious", "critical") == []

    # To be stored, it waits for as long as all of this takes; a request has ten seconds.
    traffic.do(asker.send("read", THEIRS, {"store": True}, sender=KEPT, id="kept"))
    before = waiting.until(lambda: waits_until(nodes), LIMIT)
    choose_all(page, "retry")
    page.get_by_text("are tried again").first.wait_for()
    waiting.until(lambda: waits_until(nodes) > before, LIMIT)

    choose_all(page, "discard")
    page.get_by_role("button", name="Discard messages", exact=True).click()
    page.get_by_text(" discarded.").first.wait_for()
    assert traffic.do(asker.answer("kept"))["body"]["code"] == 100  # it has been taken in
    answer = traffic.do(asker.answer("kept"))
    assert answer["body"]["code"] == 503
    assert "operator" in answer["body"]["description"]

    os.kill(nodes.b.pid, signal.SIGCONT)
    page.goto("/admin/")
    stuck = page.locator("#alarms a", has_text="The node of b.example is away")
    expect(stuck).to_have_count(0, timeout=SEEN_WITHIN)
    assert page.faults == []
    page.close()


def choose_all(page: Any, action: str) -> None:
    """Have an action done to all messages that wait."""
    page.goto(f"/admin/msgnode/peermessage/?peer__domain={B}&is_sent__exact=0")
    page.locator("#result_list tbody tr", has_text=KEPT).first.wait_for()
    page.check("#action-toggle")
    page.select_option("select[name=action]", action)
    page.locator("button[name=index]").first.click()


def waits_until(nodes: TwoNodes) -> str:
    """When the time of the message is over that is to be kept, "" if nobody sees it.

    Read where the page reads it.
    """
    path = f"file:{nodes.a.data_dir}/node.sqlite3?mode=ro"
    with closing(sqlite3.connect(path, uri=True)) as rows:
        asked = "SELECT until FROM msgnode_peermessage WHERE sender = ? AND NOT is_sent"
        found = rows.execute(asked, [KEPT]).fetchone()
    return found[0] if found else ""
