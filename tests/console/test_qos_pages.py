"""Quality of service in the console: what each role sees and may do, and what never shows."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from django.test import Client

from msgnode.console import roles
from msgnode.identity.encryption import decrypt
from msgnode.models import AuditEntry
from msgnode.qos import bookings
from msgnode.qos.bookings import Book, Limits
from msgnode.qos.models import Customer, Reservation, RoundTrip, TurnServer, Usage
from tests.qos import rows

from .accounts import as_role

pytestmark = pytest.mark.django_db

LISTS = ("turnserver", "trafficclass", "customer", "roundtrip", "reservation")
SERVER = {
    "name": "turn1", "urls": "turn:turn1.example:3478?transport=udp", "traffic_class": "",
    "capacity": "5000000", "is_enabled": "on", "command_line": "127.0.0.1:5766",
    "password": "of the command line",
}  # fmt: skip
PASSWORD = SERVER["password"]


def reserve(**order: object) -> Reservation:
    row = bookings.apply([Book(rows.video(**order), rows.owner())], Limits())[0]
    assert isinstance(row, Reservation), row
    return row


def page(client: Client, path: str) -> str:
    answer = client.get(f"/admin/qos/{path}")
    assert answer.status_code == 200, (path, answer.status_code)
    return str(answer.content.decode())


@pytest.mark.parametrize("role", [roles.VIEWER, roles.OPERATOR, roles.AUTHOR, roles.ADMINISTRATOR])
def test_every_role_sees_the_lists_and_one_without_a_role_nothing(role: str) -> None:
    rows.server("turn1", capacity=5_000_000, state="up", fault="")
    rows.customer("csp1", quota=1000, used=250)
    row = reserve(customer="csp1")
    seeing, stranger = as_role(role), as_role("")
    for name in LISTS:
        page(seeing, f"{name}/")
        assert stranger.get(f"/admin/qos/{name}/").status_code in (302, 403)
    assert "2.5 of 5.0" in page(seeing, "turnserver/")
    assert "250 of 1,000 bytes" in page(seeing, "customer/")
    assert row.pk in page(seeing, "reservation/")
    shown = page(seeing, f"reservation/{row.pk}/change/")
    assert row.pk in shown and row.users[0] not in shown


@pytest.mark.parametrize("role", [roles.OPERATOR, roles.ADMINISTRATOR])
def test_who_operates_adds_a_server_whose_password_is_sealed_and_never_shown(role: str) -> None:
    client = as_role(role)
    answer = client.post("/admin/qos/turnserver/add/", SERVER)
    assert answer.status_code == 302, answer.content.decode()[-2000:]
    server = TurnServer.objects.get()
    assert decrypt(server.sealed_password) == PASSWORD
    assert PASSWORD not in server.sealed_password
    for path in ("turnserver/", f"turnserver/{server.pk}/change/"):
        shown = page(client, path)
        assert PASSWORD not in shown and server.sealed_password not in shown
    changed = {**SERVER, "password": "", "capacity": "7000000"}
    assert client.post(f"/admin/qos/turnserver/{server.pk}/change/", changed).status_code == 302
    server.refresh_from_db()
    assert (server.capacity, decrypt(server.sealed_password)) == (7_000_000, PASSWORD)
    entries = list(AuditEntry.objects.all())
    assert {each.action for each in entries} == {"turnserver.add", "turnserver.change"}
    assert not any(
        text in str(vars(each)) for each in entries for text in (PASSWORD, server.sealed_password)
    )


@pytest.mark.parametrize("role", [roles.VIEWER, roles.AUTHOR])
def test_who_does_not_operate_changes_and_ends_nothing(role: str) -> None:
    server = rows.server()
    row = reserve()
    client = as_role(role)
    for name in LISTS:
        assert client.get(f"/admin/qos/{name}/add/").status_code == 403
    changed = client.post(f"/admin/qos/turnserver/{server.pk}/change/", SERVER)
    assert changed.status_code == 403
    assert client.post(f"/admin/qos/turnserver/{server.pk}/delete/").status_code == 403
    client.post("/admin/qos/reservation/", {"action": "end", "_selected_action": [row.pk]})
    row.refresh_from_db()
    assert row.state == "held"
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("role", [roles.OPERATOR, roles.ADMINISTRATOR])
def test_who_operates_ends_reservations_and_it_is_noted(role: str) -> None:
    rows.server()
    row, kept = reserve(), reserve()
    client = as_role(role)
    answer = client.post(
        "/admin/qos/reservation/", {"action": "end", "_selected_action": [row.pk]}, follow=True
    )
    assert "1 ended" in answer.content.decode()
    row.refresh_from_db()
    kept.refresh_from_db()
    assert (row.state, row.reason, kept.state) == ("ended", "operator", "held")
    assert AuditEntry.objects.get().action == "reservation.end"
    again = client.post(
        "/admin/qos/reservation/", {"action": "end", "_selected_action": [row.pk]}, follow=True
    )
    assert "0 ended" in again.content.decode()


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("urls", "http://turn1.example", "not a URL that begins with turn:"),
        ("command_line", "127.0.0.1", "host:port"),
        ("command_line", "127.0.0.1:99999", "host:port"),
        ("capacity", "0", "greater than or equal to 1"),
        ("capacity", str(10**15), "less than or equal to"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_made(field: str, value: str, said: str) -> None:
    answer = as_role(roles.OPERATOR).post("/admin/qos/turnserver/add/", {**SERVER, field: value})
    assert said in answer.content.decode()
    assert not TurnServer.objects.exists()


def test_a_customer_shows_its_use_over_days_and_what_is_incomplete() -> None:
    customer = rows.customer("<b>csp</b>", quota=10_000, used=600)
    for number in range(40):
        Usage.objects.create(
            customer=customer, day=date(2026, 11, 22) - timedelta(days=number),
            received=number * 10, sent=5, is_incomplete=number == 3,
        )  # fmt: skip
    shown = page(as_role(roles.VIEWER), f"customer/{customer.pk}/change/")
    assert shown.count('<th scope="row">2026-') == 30
    assert "2026-11-22" in shown and "2026-10-12" not in shown
    assert shown.count(">incomplete<") == 1
    assert "<b>csp</b>" not in shown and "&lt;b&gt;csp" in shown


def test_round_trips_are_entered_once_for_a_network_and_a_server() -> None:
    client, server = as_role(roles.OPERATOR), rows.server()
    form = {"network": "an1", "server": str(server.pk), "milliseconds": "12.5"}
    assert client.post("/admin/qos/roundtrip/add/", form).status_code == 302
    assert client.post("/admin/qos/roundtrip/add/", form).status_code == 200
    assert RoundTrip.objects.get().milliseconds == 12.5
    assert "an1" in page(client, "roundtrip/")


def test_a_server_and_a_customer_with_reservations_are_not_deleted() -> None:
    server = rows.server()
    customer = rows.customer("csp1")
    reserve(customer="csp1")
    client = as_role(roles.OPERATOR)
    for path in (f"turnserver/{server.pk}", f"customer/{customer.pk}"):
        client.post(f"/admin/qos/{path}/delete/", {"post": "yes"})
    assert TurnServer.objects.exists() and Customer.objects.exists()
