"""What coturn tells in Redis, and what becomes of it in the accounts: every byte once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from msgnode.models import Worker
from msgnode.qos import accounting, bookings, credentials, sweep, turn_state
from msgnode.qos.accounting import KEPT, MAX_ENTRIES, Ledger
from msgnode.qos.bookings import Book, Limits
from msgnode.qos.models import Customer, RelayAllocation, Reservation, Usage
from msgnode.qos.statistics import MOST, Event, Kind, parse
from msgnode.storage.claims import NotHolder

from . import rows

ME = "epoch of mine"
USER = "1795369785:abcdefghijklmnop"
CHANNEL = f"turn/realm/localhost/user/{USER}/allocation/000000000000000001"
COUNTS = "rcvp=40, rcvb=20000, sentp=41, sentb=20500"


def test_the_channels_of_coturn_and_of_its_older_fork_are_read() -> None:
    mine = (USER, "000000000000000001")
    assert parse(f"{CHANNEL}/status", "new lifetime=777, type=UDP") == Event(Kind.NEW, *mine)
    assert parse(f"{CHANNEL}/status", "refreshed lifetime=600, type=UDP") is None
    assert parse(f"{CHANNEL}/status", "deleted") == Event(Kind.ENDED, *mine)
    report = Event(Kind.REPORT, *mine, 20000, 20500)
    assert parse(f"{CHANNEL}/traffic/peer", COUNTS) == report
    assert parse(f"{CHANNEL}/traffic", COUNTS) is None
    total = Event(Kind.TOTAL, *mine, 20000, 20500)
    assert parse(f"{CHANNEL}/total_traffic/peer", COUNTS) == total
    fork = CHANNEL.replace("turn/", "turn/10.0.0.2/3478/")
    assert parse(f"{fork}/traffic/peer", COUNTS) == report


@given(st.text(max_size=80), st.text(max_size=80))
def test_case_5_what_cannot_be_read_is_passed_over(channel: str, text: str) -> None:
    assert parse(channel, text) is None
    parse(f"{CHANNEL}/{channel}", text)
    found = parse(f"{CHANNEL}/traffic/peer", text)
    assert found is None or found.received >= 0


def test_a_flood_of_allocations_is_bounded_and_counted() -> None:
    ledger = Ledger()
    for number in range(MAX_ENTRIES + 10):
        ledger.note(Event(Kind.NEW, USER, str(number)), 0)
    assert (len(ledger.entries), ledger.lost) == (MAX_ENTRIES, 10)


def test_what_has_ended_is_kept_for_its_totals_but_not_for_ever() -> None:
    ledger = Ledger()
    for number, kinds in {"1": (Kind.NEW, Kind.ENDED), "2": (Kind.NEW, Kind.TOTAL)}.items():
        for kind in kinds:
            ledger.note(Event(kind, USER, number), 1.0)
    for entry in ledger.entries.values():
        entry.written = entry.version
    ledger.forget(2.0)
    assert [number for _, number in ledger.entries] == ["1"]
    ledger.forget(2.0 + KEPT)
    assert not ledger.entries


class Accounts:
    """A reservation, a ledger, and writing the one to the other."""

    def __init__(self, quota: int | None = None) -> None:
        rows.worker(ME)
        assert turn_state.hold_claim(ME)
        rows.server()
        rows.customer(quota=quota)
        order = rows.video(customer="csp1")
        row = bookings.apply([Book(order, rows.owner())], Limits())[0]
        assert isinstance(row, Reservation)
        self.id, self.user = row.pk, row.users[-1]
        self.ledger = Ledger()

    def heard(self, kind: Kind, received: int = 0, sent: int = 0, number: str = "1") -> None:
        self.ledger.note(Event(kind, self.user, number, received, sent), 1.0)

    def write(self, times: int = 1) -> None:
        self.ledger.adopt(accounting.look_up(self.ledger.strangers(100)))
        entries = [replace(each) for each in self.ledger.unwritten(100)]
        for _ in range(times):
            versions = accounting.write(ME, entries).versions
        self.ledger.written(versions)

    @property
    def row(self) -> Reservation:
        return Reservation.objects.get(pk=self.id)

    def began(self) -> Accounts:
        """With an allocation that has carried 100 bytes one way and 200 the other."""
        self.heard(Kind.NEW)
        self.heard(Kind.REPORT, 100, 200)
        return self

    @property
    def bytes(self) -> tuple[int, int]:
        row = self.row
        day = Usage.objects.filter(customer__name="csp1").first()
        used = Customer.objects.get(name="csp1").used
        assert used == row.received + row.sent
        assert day is None or (day.received, day.sent) == (row.received, row.sent)
        return row.received, row.sent


@pytest.fixture
def accounts(db: None) -> Accounts:
    return Accounts()


def test_case_32_reports_add_up_and_the_totals_replace_them(accounts: Accounts) -> None:
    accounts.heard(Kind.NEW)
    accounts.write()
    assert accounts.row.state == "active"
    accounts.heard(Kind.REPORT, 100, 200)
    accounts.heard(Kind.REPORT, 10, 20)
    accounts.write()
    assert accounts.bytes == (110, 220)
    accounts.heard(Kind.REPORT, 1, 2)
    accounts.heard(Kind.ENDED)
    accounts.heard(Kind.TOTAL, 111, 222)
    accounts.write()
    assert accounts.bytes == (111, 222)
    assert not accounts.row.is_incomplete
    assert RelayAllocation.objects.get().ended_at is not None


def test_an_entry_that_is_written_twice_adds_nothing(accounts: Accounts) -> None:
    """A commit whose answer was lost is tried again."""
    accounts.began().write(times=3)
    accounts.heard(Kind.REPORT, 1, 1)
    accounts.write(times=2)
    assert accounts.bytes == (101, 201)


def test_case_33_a_supervisor_that_comes_later_goes_on_and_the_totals_heal(
    accounts: Accounts,
) -> None:
    accounts.began().write()
    accounts.ledger = Ledger()  # another worker
    accounts.heard(Kind.REPORT, 10, 20)
    accounts.write(times=2)
    assert accounts.bytes == (110, 220)
    accounts.heard(Kind.REPORT, 1, 2)
    accounts.write()
    assert accounts.bytes == (111, 222)
    assert accounts.row.is_incomplete
    accounts.heard(Kind.TOTAL, 500, 600)
    accounts.write()
    assert accounts.bytes == (500, 600)
    assert not accounts.row.is_incomplete


def test_case_34_a_gap_marks_what_runs_and_nothing_counts_twice(accounts: Accounts) -> None:
    accounts.began().write()
    accounts.ledger.gap()
    accounting.mark_gap(ME)
    assert accounts.row.is_incomplete
    accounts.heard(Kind.REPORT, 10, 20)
    accounts.write()
    assert accounts.bytes == (110, 220)
    accounts.heard(Kind.TOTAL, 310, 420)
    accounts.write()
    assert accounts.bytes == (310, 420)
    assert not accounts.row.is_incomplete


def test_case_35_a_server_that_counts_anew_is_a_new_allocation(accounts: Accounts) -> None:
    accounts.began().write()
    accounts.heard(Kind.REPORT, 5, 5)
    accounts.heard(Kind.NEW)  # restarted: the same number again
    accounts.heard(Kind.REPORT, 1, 2)
    accounts.write()
    assert accounts.bytes == (106, 207)
    assert RelayAllocation.objects.count() == 2


def test_totals_that_are_less_than_the_reports_of_the_day_before_take_nothing_below_zero(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts.began().write()
    tomorrow = timezone.now() + timedelta(days=1)
    monkeypatch.setattr(bookings, "now", lambda: tomorrow)
    accounts.heard(Kind.TOTAL, 10, 20)
    accounts.write()
    assert (accounts.row.received, accounts.row.sent) == (10, 20)
    days = Usage.objects.order_by("day").values_list("received", "sent")
    assert list(days) == [(100, 200), (0, 0)]
    assert not accounts.ledger.unwritten(10)


def test_a_server_that_claims_more_than_can_be_stops_no_other_account(accounts: Accounts) -> None:
    accounts.heard(Kind.NEW)
    for _ in range(10_000):
        accounts.heard(Kind.REPORT, MOST, MOST)
    accounts.heard(Kind.NEW, number="2")
    accounts.heard(Kind.REPORT, 5, 6, number="2")
    Customer.objects.update(used=2**62)
    Reservation.objects.update(received=2**63 - 1, sent=2**63 - 1)
    accounts.write()
    carried = RelayAllocation.objects.order_by("number").values_list("received", "sent")
    assert list(carried) == [(MOST, MOST), (5, 6)]
    assert Customer.objects.get().used >= 2**62
    assert accounts.row.received >= 2**62


@pytest.mark.django_db
def test_case_31_a_quota_that_is_used_up_ends_the_reservation() -> None:
    accounts = Accounts(quota=100_000)
    accounts.heard(Kind.NEW)
    accounts.heard(Kind.REPORT, 75_000, 24_999)
    accounts.write()
    assert sweep.sweep(ME, 60, 60) == 0
    accounts.heard(Kind.REPORT, 1, 0)
    accounts.write()
    assert sweep.sweep(ME, 60, 60) == 1
    assert (accounts.row.state, accounts.row.reason) == ("ended", "exceeded")


def test_an_allocation_of_what_has_ended_is_to_be_cut_again(accounts: Accounts) -> None:
    Reservation.objects.update(state="ended", reason="released", cut_at=timezone.now())
    accounts.heard(Kind.NEW)
    accounts.write()
    assert accounts.row.cut_at is None


def test_allocations_that_are_none_of_ours_are_passed_over(accounts: Accounts) -> None:
    accounts.user = "somebody"
    accounts.heard(Kind.NEW)
    accounts.user = f"1:{credentials.new_id()}"
    accounts.heard(Kind.REPORT, 5, 5)
    accounts.write()
    assert accounts.bytes == (0, 0)
    assert not accounts.ledger.unwritten(10)


def test_a_supervisor_that_was_frozen_counts_nothing(accounts: Accounts) -> None:
    accounts.heard(Kind.NEW)
    Worker.objects.filter(epoch=ME).delete()
    rows.worker("another")
    assert turn_state.hold_claim("another")
    with pytest.raises(NotHolder):
        accounts.write()
    assert not RelayAllocation.objects.exists()
