"""The twenty tasks of an operator in a browser: at most four clicks each, and each has its effect.

All of them are done at one node as `manage.py run` starts it, with two workers, 500 sessions, 5,000
registrations, 50 rules, a peer and a broker. Clicks are counted from the overview; what is typed is
not. The times of all pages are printed at the end: the bar for them is that of test_lists.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from msgnode.settings.console import unfold
from registry.rest.paths import key_of
from tests import waiting
from tests.client import ALLOCATION, SESSION, Client, address, code
from tests.devices.client import Device
from tests.devices.mqtt.broker import Mosquitto, mosquitto
from tests.e2e.launched import Launched, command_of
from tests.federation.nodes import B, answer_requests, peer_row, subscribe
from tests.monitoring.test_alarm_rules import webhook
from tests.node import Node
from tests.ports import free_port
from tests.services import redis_server

from . import window
from .browser import log_in
from .traffic import Traffic, talking

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

MOST_CLICKS = 4
SESSIONS = 500
LIMIT = 40.0  # seconds, on a machine that has other things to do
SETTINGS = {
    "WORKERS": "2", "DEVICE_HTTP": "true", "QOS_BROKER": "embedded", "RECORD_FLUSH_SECONDS": "1",
    "FEDERATION": "listed", "FEDERATION_NETWORKS": "127.0.0.0/8", "SPARK_KEEP_CLASSES": "false",
    "ALARM_WEBHOOK_HOSTS": "127.0.0.1",
    "WORKER_TIMEOUT": "120",  # so that no runtime is told to come back while sessions even out
}  # fmt: skip
FILL = """
from django.utils import timezone
from policies.authoring import pap
from policies.authoring.drafts import replace_draft
from registry.models import Hyperty, User
now = timezone.now()
users = [User(user_id=f"user://localhost/u{n}", idp_identifier=f"u{n}") for n in range(500)]
User.objects.bulk_create(users)
Hyperty.objects.bulk_create([
    Hyperty(url=f"hyperty://localhost/{n:08}-0000-4000-8000-000000000000", status="live",
            expires=86400, started_at=now, modified_at=now, user=users[n % 500],
            expires_at=now + timezone.timedelta(days=1),
            descriptor="hyperty-catalogue://localhost/.well-known/hyperty/Chat")
    for n in range(5000)])
rules = [{"id": f"closed-{n}", "effect": "deny",
          "condition": {"msgTo": {"equals": f"comm://localhost/closed-{n}"}},
          "obligations": {"inform": f"Room {n} is closed."}} for n in range(50)]
rooms = {"id": "Rooms", "rules": rules}
replace_draft([{"id": "House", "mode": "enforce", "policies": [rooms]}], {})
pap.publish()
"""
LINKS = {
    page["title"]: (str(page["link"]), group.get("title", ""))
    for group in unfold("localhost")["SIDEBAR"]["navigation"]
    for page in group["items"]
}
STATE = "SELECT state FROM msgnode_session WHERE runtime_url = ? ORDER BY opened_at DESC"
ROLLED_UP = "SELECT rows_read FROM spark_reportrun WHERE state = 'done'"
POOLS = "SELECT scheme FROM msgnode_addresspool"
GONE = "hyperty://localhost/00004711-0000-4000-8000-000000000000"
COUNTS = """
  document.addEventListener("click", (event) => {
    if (event.isTrusted && event.detail)
      sessionStorage.clicks = Number(sessionStorage.clicks ?? 0) + 1;
  }, true);
  addEventListener("load", () => {
    const times = JSON.parse(sessionStorage.times ?? "[]");
    const [{ responseStart }] = performance.getEntriesByType("navigation");
    times.push([location.pathname, performance.now(), responseStart]);
    sessionStorage.times = JSON.stringify(times);
  });
"""


@dataclass
class Stage:
    """What the tasks are done with."""

    node: Node
    launched: Launched
    traffic: Traffic
    peer: Node
    broker: Mosquitto
    answering: str  # an address at the peer
    context: Any  # of a browser that has logged in

    def abroad(self) -> tuple[Client, str]:
        """A runtime here, and the address of one at the peer, which answers."""
        return self.traffic.runtime(), self.answering

    def until_answered(self, sender: Client, to: str, wanted: int) -> None:
        """Ask until the response has this code; one that is refused on its way never comes."""
        codes: list[int] = []

        async def ask() -> int:
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    return code(await sender.ask("read", to))
            return 0

        def is_wanted() -> bool:
            codes.append(self.traffic.do(ask()))
            return codes[-1] == wanted

        waiting.until(is_wanted, LIMIT, lambda: f"never {wanted}: {codes[-9:]}")

    def comes_in(self, runtime_url: str) -> bool:
        """Whether this runtime gets a session."""

        async def come() -> int:
            async with self.node.ws() as client:
                client.runtime_url = runtime_url
                return code(await client.ask("open", SESSION, sender=runtime_url))

        return self.traffic.do(come()) == 200

    def state_of(self, client: Client) -> str:
        """The newest session of a runtime, by the database."""
        found = self.node.rows(STATE, client.runtime_url)
        return str(found[0][0])

    def workers(self) -> set[int]:
        """The processes that serve."""
        family = self.launched.remember_family()
        serving = [each for each in family if "msgnode.servers.main" in command_of(each)]
        return {each.pid for each in serving if each.is_running()}

    async def measured(self, topic: str, text: str, reader: Client) -> None:
        """A sensor publishes until its value is read."""
        async with self.broker.client("sensor") as sensor:
            heard = asyncio.ensure_future(reader.expect(type="update"))
            while not heard.done():
                await sensor.publish(topic, text, qos=1)
                await asyncio.wait({heard}, timeout=0.2)
        assert str(heard.result()["body"]["value"]) == text

    def runs(self) -> str:
        """The runs of reports, with what went wrong."""
        return str(self.node.rows("SELECT state, step, error FROM spark_reportrun"))


class Console:
    """An operator's page that counts clicks."""

    def __init__(self, page: Any) -> None:
        self.page = page
        page.add_init_script(COUNTS)
        page.goto("/admin/")
        page.wait_for_load_state("load")
        page.evaluate("sessionStorage.clicks = 0")

    @property
    def clicks(self) -> int:
        return int(self.page.evaluate("Number(sessionStorage.clicks ?? 0)"))

    @property
    def worst(self) -> str:
        """How long the slowest page took, how much of it until the node answered, and which."""
        times = self.page.evaluate("JSON.parse(sessionStorage.times ?? '[]')")
        path, took, answered = max(times, key=lambda each: each[1])
        path = re.sub(r"[0-9a-f-]{36}|(?<=/)[0-9]+(?=/)", "…", path)
        return f"{took:.0f} ms at most, {answered:.0f} of them for the node: {path}"

    def menu(self, title: str) -> None:
        """A page of the menu; its group is opened first, if it is closed."""
        link = self.page.locator(f"#nav-sidebar a[href='{LINKS[title][0]}']").first
        if not link.is_visible():
            self.click("#nav-sidebar h2", has_text=LINKS[title][1])
        with self.page.expect_navigation():
            link.click()

    def find(self, term: str) -> None:
        """Search the list that is open."""
        self.page.fill("#searchbar", term)
        with self.page.expect_navigation():
            self.page.press("#searchbar", "Enter")

    def search(self, term: str) -> None:
        """Open the first hit of the search over everything."""
        from playwright.sync_api import expect

        self.page.keyboard.press("/")
        expect(self.page.locator("#search-input-command")).to_be_focused()
        self.page.keyboard.type(term)
        with self.page.expect_navigation():
            self.page.keyboard.press("Enter")

    def add(self, **values: str | bool) -> None:
        """Add a row to the list that is open; True ticks the box of this value."""
        self.click("a[href*='/add/']:not(#nav-sidebar a)")
        for name, value in values.items():
            box = self.page.locator(f"[name='{name}']:visible").first
            if value is True:
                named = re.compile(rf"^\s*{re.escape(name)}:")
                self.page.locator("label", has_text=named).locator("input").check()
            elif box.evaluate("each => each.tagName") == "SELECT":
                box.select_option(value)
            else:
                box.fill(value)
        with self.page.expect_navigation():
            self.click("button[name=_save], input[name=_save]")

    def click(self, selector: str, **options: Any) -> None:
        self.page.locator(selector, **options).first.click()

    def says(self, text: str) -> None:
        self.page.get_by_text(text).first.wait_for(timeout=1000 * LIMIT)


def answering(there: Traffic) -> str:
    """A runtime of the peer's domain that answers what it is asked; its address."""
    runtime, at = there.runtime(f"runtime://{B}/answers"), f"hyperty://{B}/answers"
    assert code(there.do(subscribe(runtime, B, at))) == 200

    async def answer() -> None:
        while True:
            with suppress(TimeoutError):  # nobody has asked for long
                await answer_requests(runtime)

    there.go_on(answer())
    return at


@contextmanager
def staged(place: Path, template: Path, chrome: Any) -> Iterator[Stage]:
    """Everything that the tasks need, started."""
    data, port = place / "a", free_port()
    data.mkdir()
    (place / "b").mkdir()
    for folder in ("a", "b"):
        shutil.copy(template, place / folder / "node.sqlite3")
    with ExitStack() as stack:
        broker = stack.enter_context(mosquitto(place / "broker"))
        node = Node(data, **SETTINGS, MQTT_URL=broker.url)
        node.port = port
        node.manage("shell", "-c", FILL)
        peer = Node(place / "b", DOMAIN=B, ALLOWED_HOSTS="*")
        stack.callback(peer.kill)
        peer.start()
        launched = stack.enter_context(
            Launched(data, port, environment={**SETTINGS, "MQTT_URL": broker.url})
        )
        said = re.search(r"password (\S+)", launched.line_with("console account"))
        assert said
        launched.ready()
        node.manage("peers", "add", B, "--url", f"http://127.0.0.1:{peer.port}")
        waiting.until(lambda: peer_row(node)["found_digest"], LIMIT)
        node.manage("peers", "approve", B)
        traffic = stack.enter_context(talking(node))
        first = window.operator_page(chrome, port, said[1])
        context = chrome.new_context(
            storage_state=first.context.storage_state(),
            base_url=f"http://127.0.0.1:{port}",
            viewport={"width": 1440, "height": 900},
        )
        traffic.crowd(SESSIONS)
        waiting.until(lambda: peer_row(node)["state"] == "live", LIMIT)
        there = stack.enter_context(talking(peer))
        yield Stage(node, launched, traffic, peer, broker, answering(there), context)


@contextmanager
def operated(stage: Stage) -> Iterator[Console]:
    """The overview in a page of its own."""
    page = stage.context.new_page()
    page.set_default_timeout(1000 * LIMIT)
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    yield Console(page)
    page.close()


Later = Callable[[], None]
"""What is looked at when all else is done, because it takes long."""


def who_is_connected_and_what_do_they_send(stage: Stage, console: Console) -> None:
    sender, _ = stage.traffic.pair(20)
    console.menu("Sessions")
    counted = re.search(r"(\d+) sessions", console.page.inner_text("body"))
    assert counted and int(counted[1]) >= SESSIONS
    console.find(sender.runtime_url)
    console.click("#result_list a", has_text=sender.runtime_url)
    console.page.wait_for_selector("#session-live[data-state=live]")
    messages = "parseFloat(document.querySelector('[data-figure=messages]').textContent)"
    waiting.in_page(console.page, f"{messages} > 10 && {messages} < 40", LIMIT)


def one_runtime_is_found_by_its_url(stage: Stage, console: Console) -> None:
    runtime, heard = stage.traffic.runtime(), address("comm")
    stage.traffic.do(runtime.subscribe(heard))
    (held,) = stage.traffic.do(runtime.allocate())
    console.search(runtime.runtime_url)
    console.says(heard)
    console.says(held)


def why_a_message_was_refused(stage: Stage, console: Console) -> None:
    sender = stage.traffic.runtime()
    answer = stage.traffic.do(sender.ask("read", "comm://localhost/closed-7"))
    told = answer["body"]["description"]
    assert code(answer) == 403 and "Room 7 is closed" in told
    console.search(sender.runtime_url)
    console.click("a", has_text="Why")
    console.says(f"Its sender was told: “{told}”")


def one_message_is_followed(stage: Stage, console: Console) -> None:
    sender, heard = stage.traffic.pair(5)
    console.menu("Traces")
    console.page.fill("[name=address]", heard)
    console.page.press("[name=address]", "Enter")
    console.click("#traces-rows button")
    steps = console.page.locator("#trace-steps tr")
    steps.filter(has_text="written").first.wait_for()
    assert steps.filter(has_text="admission").count()


def a_rule_that_denies_a_domain_is_tried_enforced_and_taken_back(
    stage: Stage, console: Console
) -> None:
    sender, abroad = stage.abroad()
    stage.until_answered(sender, abroad, 200)
    console.menu("Rules")
    console.click("a.addlink, a[href$='/rule/add/']")
    page = console.page
    page.select_option("#guide-example", label="Nothing to or from a domain")
    page.get_by_label("Value", exact=True).first.fill(B)
    page.get_by_label("Value", exact=True).last.fill(B)
    page.fill("[name=key]", "not-with-b")
    page.press("[name=key]", "Enter")
    console.says("Not in force yet")
    console.says("it would have refused")
    stage.until_answered(sender, abroad, 200)
    console.click("button", has_text="Enforce this rule")
    console.says("this rule is enforced from now on")
    stage.until_answered(sender, abroad, 403)
    console.click("button", has_text="Take it back")
    stage.until_answered(sender, abroad, 200)


def somebody_is_banned_and_let_in_again(stage: Stage, console: Console) -> None:
    noisy = stage.traffic.runtime()
    console.search(noisy.runtime_url)
    console.click("a", has_text="Ban for an hour")
    console.click("button[name=_save], input[name=_save]")
    assert stage.traffic.do(noisy.close_code()) == 4403
    console.click("a", has_text="Undo")
    console.click("button", has_text="Undo the change")
    console.says("has its previous values again")
    waiting.until(lambda: stage.comes_in(noisy.runtime_url), LIMIT)


def a_slow_reader_is_found_and_ended(stage: Stage, console: Console) -> None:
    _, heard = stage.traffic.pair(20, size=1_000)
    slow = stage.traffic.runtime()
    stage.traffic.do(slow.subscribe(heard))
    slow.cut()  # gone without a word: what it is sent waits
    slowest = console.page.locator("[data-top=readers] a", has_text=slow.runtime_url)
    slowest.click()
    console.click("a", has_text="End session")
    console.page.get_by_role("button", name="End sessions", exact=True).click()
    waiting.until(lambda: stage.state_of(slow) == "closed", LIMIT)


def the_top_talker_is_on_the_overview(stage: Stage, console: Console) -> None:
    from playwright.sync_api import expect

    loud, _ = stage.traffic.pair(80)
    first = console.page.locator("[data-top=talkers] a").first
    expect(first).to_have_text(loud.runtime_url)
    first.click()
    console.says(loud.runtime_url)


def an_alarm_reaches_a_webhook(stage: Stage, console: Console) -> None:
    stage.traffic.pair(20)
    with webhook() as receiver:
        console.menu("Alarm rules")
        console.add(
            name="flood", figure="messages", limit="1", seconds="1",
            webhook=f"http://127.0.0.1:{receiver.server_port}/alarm",
        )  # fmt: skip
        waiting.until(lambda: receiver.told, LIMIT)
    assert (receiver.told[0]["alarm"], receiver.told[0]["state"]) == ("flood", "raised")
    console.page.goto("/admin/")
    console.click("#alarms a", has_text="messages in")
    console.says("raised")


def a_report_is_made_now(stage: Stage, console: Console) -> Later:
    console.menu("The last 24 hours")
    console.click("button", has_text="Roll up now")
    page = console.page.url

    def is_made() -> None:
        (rows,) = waiting.until(lambda: stage.node.rows(ROLLED_UP), 3 * LIMIT, stage.runs)[0]
        assert rows > SESSIONS
        with operated(stage) as again:
            again.page.goto(page)
            again.says(f"{rows:,}")

    return is_made


def a_registration_is_searched_and_removed(stage: Stage, console: Console) -> None:
    path = f"/api/v1/hyperties/{key_of(GONE)}"
    assert stage.node.get(path) == 200
    console.menu("Hyperties")
    console.find(GONE)
    console.page.check("#result_list input.action-select")
    console.page.select_option("select[name=action]", label="Purge the selected entries for good")
    console.page.get_by_role("button", name="Run", exact=True).click()
    console.says("1 entries purged")
    assert stage.node.get(path) == 404


def an_account_with_a_role_is_made(stage: Stage, console: Console) -> None:
    console.menu("Accounts")
    console.add(username="vera", password1="ein langes Wort", password2="ein langes Wort",
                **{"viewer": True})  # fmt: skip
    other = stage.context.browser.new_page(base_url=f"http://127.0.0.1:{stage.node.port}")
    other.goto("/admin/login/")
    other.fill("[name=username]", "vera")
    other.fill("[name=password]", "ein langes Wort")
    other.press("[name=password]", "Enter")
    other.wait_for_url("**/admin/")
    other.wait_for_selector("#live")
    assert other.goto("/admin/msgnode/ban/add/").status == 403
    other.close()


def an_api_key_is_made(stage: Stage, console: Console) -> None:
    console.menu("API keys")
    console.add(name="sensors", **{"device:connect": True})
    key = re.search(r"mnk?_\S+", console.page.inner_text("main, #main"))
    assert key, console.page.inner_text("main, #main")
    opened = [Device(stage.node, key=each).open() for each in (key[0], key[0] + "x")]
    assert [stage.traffic.do(each).status_code for each in opened] == [201, 401]


def a_peer_is_paused(stage: Stage, console: Console) -> None:
    sender, abroad = stage.abroad()
    stage.until_answered(sender, abroad, 200)
    console.menu("Peers")
    console.page.check("#result_list input.action-select")
    console.page.select_option("select[name=action]", label="Pause")
    console.page.get_by_role("button", name="Run", exact=True).click()
    waiting.until(lambda: peer_row(stage.node)["decision"] == "paused", LIMIT)
    stage.until_answered(sender, abroad, 503)
    stage.node.manage("peers", "resume", B)
    stage.until_answered(sender, abroad, 200)


def a_topic_of_sensors_becomes_an_object(stage: Stage, console: Console) -> None:
    reader = stage.traffic.runtime()
    stage.traffic.do(reader.subscribe("context://localhost/kitchen/changes"))
    console.menu("Sensor topics")
    console.add(topic="sensors/+/t", object="context://localhost/{1}", attribute="temperature")
    stage.traffic.do(stage.measured("sensors/kitchen/t", "21.5", reader))


def a_turn_server_is_used_for_the_next_call(stage: Stage, console: Console) -> None:
    console.menu("TURN servers")
    console.add(name="turn1", urls="turn:turn.example:3478?transport=udp", capacity="100000000")
    caller = stage.traffic.runtime()
    wanted = {"resource": "/reservations", "value": {"flows": [{"mediaType": "video"}]}}
    answer = stage.traffic.do(caller.ask("create", "domain://qos.localhost", wanted))
    assert code(answer) == 200, answer
    assert "turn.example" in str(answer["body"]["value"]["iceServers"])


def addresses_are_put_into_a_pool(stage: Stage, console: Console) -> None:
    console.menu("Address pools")
    console.add(scheme="sip", add="sip:guest{1-2}@b.org")
    guest = stage.traffic.runtime()

    async def is_lent() -> bool:
        wanted = {"scheme": "sip", "value": {"number": 1}}
        answer = await guest.ask("create", ALLOCATION, wanted)
        return answer["body"].get("value", {}).get("allocated", [""])[0].startswith("sip:guest")

    waiting.until(lambda: stage.traffic.do(is_lent()), LIMIT)


def who_did_what_is_in_the_audit_log(stage: Stage, console: Console) -> None:
    console.menu("Audit log")
    console.find("manage.py peers")  # which has introduced the peer
    console.click("#result_list tbody a")
    console.says(B)


def a_backup_and_a_restore_are_started(stage: Stage, console: Console) -> Later:
    console.menu("Backups")
    console.click("button", has_text="Back up now")
    console.says("made: ")
    (archive,) = (stage.node.data_dir / "backups").glob("*.tar.gz")
    console.click("button", has_text="Check for a restore")
    console.says("can be restored: ")
    command = console.page.inner_text("#restore-command").split()
    assert command == ["manage.py", "restore", str(archive), "--replace"]

    def restored() -> None:
        """Last of all, with the node stopped; what was registered since the backup is gone."""
        stage.launched.signal(signal.SIGTERM)
        assert stage.launched.status() == 0
        words, data = (sys.executable, *command), stage.node.data_dir
        with Launched(data, stage.node.port, words, SETTINGS) as restore:
            assert restore.status() == 0, restore.text()
        assert stage.node.rows(POOLS) == []

    return restored


def one_of_two_workers_is_drained(stage: Stage, console: Console) -> None:
    before = stage.workers()
    assert len(before) == 2
    console.menu("Workers")
    console.click("#result_list tbody a")
    console.click("a", has_text="Drain and restart")
    console.click("button", has_text="Drain and restart")
    waiting.until(lambda: len(now := stage.workers()) == 2 and len(now & before) == 1, LIMIT)
    waiting.until(lambda: stage.traffic.told_to_come_back() > SESSIONS / 5, LIMIT)


TASKS: tuple[Callable[[Stage, Console], Later | None], ...] = (
    a_report_is_made_now,
    who_is_connected_and_what_do_they_send,
    one_runtime_is_found_by_its_url,
    why_a_message_was_refused,
    one_message_is_followed,
    a_rule_that_denies_a_domain_is_tried_enforced_and_taken_back,
    somebody_is_banned_and_let_in_again,
    a_slow_reader_is_found_and_ended,
    the_top_talker_is_on_the_overview,
    an_alarm_reaches_a_webhook,
    a_registration_is_searched_and_removed,
    an_account_with_a_role_is_made,
    an_api_key_is_made,
    a_peer_is_paused,
    a_topic_of_sensors_becomes_an_object,
    a_turn_server_is_used_for_the_next_call,
    a_backup_and_a_restore_are_started,
    addresses_are_put_into_a_pool,  # which is not in the backup
    who_did_what_is_in_the_audit_log,
    one_of_two_workers_is_drained,  # from here on sessions move
)


def test_each_task_of_an_operator_takes_at_most_four_clicks(
    tmp_path: Path, template: Path, chromium_window: Any
) -> None:
    """All in one test: a node that is started for each would take ten times as long."""
    failures, later, clicks = {}, {}, {}
    with staged(tmp_path, template, chromium_window) as stage:
        for task in TASKS:
            with operated(stage) as console:
                try:
                    later[task.__name__] = task(stage, console)
                    assert console.page.faults == []
                except Exception:
                    failures[task.__name__] = traceback.format_exc()
                clicks[task.__name__] = console.clicks
                print(f"{task.__name__:62}", console.clicks, "clicks,", console.worst)
        for look in filter(None, later.values()):
            look()
    assert not failures, "\n".join(f"{name}: {why}" for name, why in failures.items())
    assert {name: number for name, number in clicks.items() if number > MOST_CLICKS} == {}


def test_a_worker_that_died_is_said_on_the_first_page_without_a_click(
    start_node: Any, chromium_window: Any
) -> None:
    with redis_server() as url:
        first = start_node(REDIS_URL=url, WORKER_TIMEOUT=3)
        database = f"sqlite:///{first.data_dir}/node.sqlite3"
        second = start_node(DATABASE_URL=database, REDIS_URL=url, WORKER_TIMEOUT=3)
        log_in(first)
        page = window.operator_page(chromium_window, first.port)
        waiting.in_page(page, "document.querySelectorAll('#live-workers tr').length === 2")
        second.kill()
        page.wait_for_selector("#live-workers .console-silent")
        page.wait_for_selector("#lights li[data-state=fault]")
        page.wait_for_selector("#alarms a:has-text('unclean-stop')")
        page.close()
