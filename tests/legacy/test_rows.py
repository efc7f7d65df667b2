"""The rows of legacy networks: how operators enter them, and what is said of what is wrong."""

from __future__ import annotations

import html
import json
import re
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.utils import timezone

from msgnode.federation import store
from msgnode.identity.encryption import decrypt
from msgnode.legacy.rows import KeptAddresses
from msgnode.models import AuditEntry, ControlMessage, LegacyNetwork, Peer, PeerMessage
from msgnode.storage.writer import GroupWriter

pytestmark = pytest.mark.django_db
PAGES, REST = "/admin/msgnode/legacynetwork/", "/api/v1/legacy-networks/"
SECRET = "between us and nobody else"
GOOD = {
    "domain": "legacy.example", "network": "xmpp", "host": "127.0.0.1", "port": 5347,
    "transport": "tcp", "component": "gw.legacy.example", "pool": 0, "per_minute": 20,
    "secret": SECRET,
}  # fmt: skip
BAD = [
    ({"domain": "localhost"}, "domain"),
    ({"component": "legacy.example"}, "component"),
    ({"component": "no domain"}, "component"),
    ({"host": "127.0.0.1:5347"}, "host"),
    ({"host": ""}, "host"),
    ({"network": "script", "pool": 2}, "component"),
    ({"network": "script", "component": ""}, "pool"),
    ({"port": 0}, "port"),
    ({"port": 65_536}, "port"),
    ({"pool": 1_001}, "pool"),
    ({"per_minute": 0}, "per_minute"),
    ({"secret": ""}, "secret"),
    ({"secret": "a\x00b"}, "secret"),
    ({"component": ""}, "component"),
    ({"network": "sip", "component": ""}, "pool"),
    ({"network": "sip", "media": "127.0.0.1"}, "media"),
    ({"network": "sip", "trusted": "on"}, "trusted"),
]


@pytest.fixture
def operator(admin_client: Client) -> Client:
    return admin_client


def row() -> LegacyNetwork:
    return LegacyNetwork.objects.get()


def test_a_network_is_added_on_its_page_and_its_secret_is_shown_nowhere(operator: Client) -> None:
    answer = operator.post(f"{PAGES}add/", GOOD, follow=True)
    assert row().decision == Peer.Decision.APPROVED, answer.content.decode()
    assert decrypt(row().sealed) == SECRET
    assert ControlMessage.objects.filter(kind=store.CHANGED).exists()
    change = f"{PAGES}{row().pk}/change/"
    shown = [operator.get(each).content.decode() for each in (PAGES, change, REST)]
    shown += [json.dumps(list(AuditEntry.objects.values("action", "before", "after")))]
    assert not [each for each in shown if SECRET in each or row().sealed in each]
    operator.post(change, GOOD | {"secret": "", "port": 5348}, follow=True)
    assert (row().port, decrypt(row().sealed)) == (5348, SECRET)


@pytest.mark.parametrize(("change", "field"), BAD)
def test_what_cannot_be_a_network_is_refused_by_the_name_of_the_field(
    operator: Client, change: dict[str, Any], field: str
) -> None:
    page = operator.post(f"{PAGES}add/", GOOD | change, follow=True)
    assert field in page.context["adminform"].form.errors
    answer = operator.post(REST, GOOD | change, "application/json")
    assert answer.status_code == 400
    assert field in answer.content.decode()
    assert not LegacyNetwork.objects.exists()


def test_a_network_is_added_changed_and_decided_about_over_rest(operator: Client) -> None:
    answer = operator.post(REST, GOOD, "application/json")
    assert answer.status_code == 201, answer.content
    assert answer.json()["decision"] == "approved"
    assert "secret" not in answer.json()
    place = f"{REST}legacy.example/"
    assert operator.patch(place, {"pool": 5}, "application/json").json()["pool"] == 5
    assert operator.patch(place, {"domain": "b.example"}, "application/json").status_code == 400
    for act, decision in (("pause", "paused"), ("resume", "approved"), ("block", "blocked")):
        assert operator.post(f"{place}{act}/").json()["decision"] == decision
    assert operator.get(f"{place}queue/").status_code == 200
    for act in ("approve", "look", "stubs"):  # it has no stub
        assert operator.post(f"{place}{act}/").status_code == 404
    assert operator.delete(place).status_code == 204
    assert not Peer.objects.exists()


def test_case_55_a_network_is_paused_blocked_and_resumed_on_its_page(operator: Client) -> None:
    operator.post(f"{PAGES}add/", GOOD)
    for action, decision in (("pause", "paused"), ("block", "blocked"), ("resume", "approved")):
        operator.post(PAGES, {"action": action, "_selected_action": [row().pk]})
        assert row().decision == decision
    operator.post(PAGES, {"action": "restart", "_selected_action": [row().pk]})
    assert ControlMessage.objects.filter(kind=store.RESTART).exists()
    assert AuditEntry.objects.filter(action="peer.restart").exists()


def test_how_a_network_is_stands_in_the_list_on_its_page_and_over_rest(operator: Client) -> None:
    operator.post(REST, GOOD, "application/json")
    pk, now = row().pk, timezone.now()
    figures = {
        "sent_per_second": 2.5, "received_per_second": 0.1, "refused": 7, "waiting": 1,
        "oldest_seconds": 3.2, "round_trip_ms": 1.5, "restarts": 2, "way": "gateway",
        "out": {"passed_at": now.timestamp()},
        "in": {"failed_at": now.timestamp(), "error": "nobody here is eve"},
    }  # fmt: skip
    store.note_state(pk, "live", "refused: nobody here is eve")
    store.note_figures({pk: figures})
    PeerMessage.objects.create(peer=row(), queue="q", number=1, since=now - timedelta(seconds=30),
                               until=now + timedelta(seconds=60), size=1)  # fmt: skip
    told = operator.get(f"{REST}legacy.example/").json()
    assert (told["state"], told["figures"]) == ("live", figures)
    for place in (PAGES, f"{PAGES}{pk}/change/"):
        page = html.unescape(operator.get(place).content.decode())
        for words in ("live", "2.5/s, 0.1/s, 1.5 ms, 7 refused", "passed ", "nobody here is eve"):
            assert words in page, (place, words)
        assert re.search("1 message, the oldest for 3[0-9] s", page), place


def test_a_long_error_is_cut_in_the_list_and_whole_on_the_page(operator: Client) -> None:
    operator.post(REST, GOOD, "application/json")
    pk, error = row().pk, "the server refuses <the> secret of this component, " * 3
    store.note_state(pk, "refused", error)
    way = {"failed_at": timezone.now().timestamp(), "error": error}
    store.note_figures({pk: {"sent_per_second": 0.0, "received_per_second": 0.0,
                             "round_trip_ms": 0, "out": way, "in": way}})  # fmt: skip
    cells = operator.get(PAGES).content.decode()
    titles = "".join(re.findall(r'<span title="([^"]*)"', cells))
    assert html.unescape(titles).count(error) == 3
    assert html.escape(error) not in re.sub(r'title="[^"]*"', "", cells)
    assert cells.count("the server refuses &lt;the&gt; secret of this component, the …") == 3
    shown = html.unescape(operator.get(f"{PAGES}{pk}/change/").content.decode())
    assert shown.count(error) == 3


def test_the_trail_of_a_page_has_the_name_of_its_row_as_it_was_typed(operator: Client) -> None:
    operator.post(REST, GOOD, "application/json")
    page = operator.get(f"{PAGES}{row().pk}/change/").content.decode()
    assert "Legacy networks" in page
    assert "legacy.example" in page
    assert "Legacy.example" not in page


def test_the_state_of_a_network_lasts_while_its_errors_change(operator: Client) -> None:
    operator.post(REST, GOOD, "application/json")
    store.note_state(row().pk, "live", "")
    since = row().state_at
    assert since is not None
    store.note_state(row().pk, "live", "refused: nobody here is eve")
    assert (row().state_at, row().last_error) == (since, "refused: nobody here is eve")
    store.note_state(row().pk, "waiting", "it has ended")
    assert row().state == "waiting"
    assert row().state_at not in (None, since)


def test_the_page_of_peers_has_the_nodes_alone(operator: Client) -> None:
    operator.post(REST, GOOD, "application/json")
    Peer.objects.create(domain="b.example")
    page = operator.get("/admin/msgnode/peer/").content.decode()
    assert "b.example" in page
    assert "legacy.example" not in page


def test_two_networks_have_two_domains_of_the_gateway(operator: Client) -> None:
    operator.post(REST, GOOD, "application/json")
    answer = operator.post(REST, GOOD | {"domain": "other.example"}, "application/json")
    assert "has this domain of the gateway already" in answer.content.decode()
    Peer.objects.create(domain="b.example")
    other = {"domain": "b.example", "component": "gw.b.example"}
    answer = operator.post(REST, GOOD | other, "application/json")
    assert "already" in answer.content.decode()


def test_the_command_adds_one_and_names_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    add = ["peers", "add", "legacy.example", "--component", "gw.legacy.example", "--secret"]
    said = StringIO()
    call_command(*add, str(file), "--xmpp", "127.0.0.1:5347", stdout=said)
    assert (row().host, row().port, decrypt(row().sealed)) == ("127.0.0.1", 5347, SECRET)
    for place in ("127.0.0.1", "127.0.0.1:x", ":5347"):
        with pytest.raises(CommandError, match=r"(port|host): "):
            call_command(*add, str(file), "--xmpp", place, stdout=said)
    call_command(*add[:-1], "--xmpp", "127.0.0.2:5347", "--pool", "7", stdout=said)
    assert (row().host, row().pool, decrypt(row().sealed)) == ("127.0.0.2", 7, SECRET)
    assert SECRET not in said.getvalue()


def test_the_command_adds_a_sip_network(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("pw-{user}\n")
    said = StringIO()
    add = ["peers", "add", "sip.example", "--sip", "127.0.0.1:5060", "--secret", str(file)]
    with pytest.raises(CommandError, match="pool: Without"):
        call_command(*add, stdout=said)
    call_command(*add, "--pool", "3", "--transport", "ws", stdout=said)
    assert (row().network, row().port, row().transport) == ("sip", 5060, "ws")
    assert (row().component, row().pool, decrypt(row().sealed)) == ("", 3, "pw-{user}")


def test_the_command_adds_one_network_by_script_which_has_neither_place_nor_secret() -> None:
    how = ("--by-script", "--pool", "2")
    call_command("peers", "add", "sip.example", *how, stdout=StringIO())
    assert (row().network, row().host, row().sealed) == ("script", "", "")
    call_command("peers", "add", "sip.example", *how, stdout=StringIO())  # the same again
    with pytest.raises(CommandError, match="speaks to sip.example already"):
        call_command("peers", "add", "other.example", *how)


def test_a_worker_sees_how_a_network_is_reached_and_serves_it_without_a_stub() -> None:
    given = {name: value for name, value in GOOD.items() if name != "secret"}
    LegacyNetwork.objects.create(**given, sealed="x", decision=Peer.Decision.APPROVED)
    (found,) = store.read()
    assert found.is_served
    assert not found.needs_look
    assert found.legacy is not None
    assert (found.legacy.component, found.legacy.sealed) == ("gw.legacy.example", "x")
    LegacyNetwork.objects.update(port=1)
    assert not found.has_place_of(store.read()[0])


@pytest.mark.django_db(transaction=True)
async def test_what_a_gateway_keeps_is_read_by_the_next_worker() -> None:
    given = {name: value for name, value in GOOD.items() if name != "secret"}
    network = await LegacyNetwork.objects.acreate(**given, sealed="x")
    writer = GroupWriter(patience=2.0)
    kept = KeptAddresses(writer, network.pk)
    for _ in range(2):
        kept.write("contact", "user://localhost/alice", "bob@legacy.example", True)
    kept.write("lent", "runtime://localhost/1", "guest001", True)
    kept.write("contact", "user://localhost/" + "x" * 1_000, "bob@legacy.example", True)
    kept.write("lent", "runtime://localhost/1", "guest001", False)
    assert await kept.read() == [("contact", "user://localhost/alice", "bob@legacy.example")]
    await writer.stop()
