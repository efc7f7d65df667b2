"""Stored requests: written down beside their way, taken up again, bounded, set aside."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from msgnode.bus.ports import Response
from msgnode.bus.table import RoutingTable
from msgnode.core.errors import Unavailable
from msgnode.core.messages import Message
from msgnode.federation import stored_messages
from msgnode.federation.exchange import (
    ASKED_SECONDS,
    ATTEMPTS,
    SOON,
    NotCarried,
    PeerExchange,
)
from msgnode.federation.queue import MessageClass, PeerQueue, class_of
from msgnode.federation.stored_messages import (
    SET_ASIDE_ALARM,
    PeerStore,
    StoredMessages,
    StoreLimits,
)
from msgnode.identity.encryption import decrypt, encrypt
from msgnode.models import Peer, StoredMessage
from tests.fakes import FakeSession

from .links import OURS, A, B, message
from .test_peer_exchange import response

pytestmark = pytest.mark.django_db

HOUR = 3600.0


class Committed:
    """A change that is in the database, or is not, and who waits for that."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error
        self._callbacks: list[Callable[[Any], None]] = []

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def cancelled(self) -> bool:
        return False

    def exception(self) -> Exception | None:
        return self._error

    def tell(self) -> None:
        for each in self._callbacks:
            each(self)


class Database:
    """A writer that writes at once, and tells when asked to. `is_full`: it can write nothing."""

    def __init__(self) -> None:
        self.is_full = False
        self.told: list[Committed] = []

    def submit(self, *changes: Any, result: Any = None) -> Any:
        error = Unavailable("The disk is full.") if self.is_full else None
        if error is None:
            for each in changes:
                each.action()
        self.told.append(Committed(error))
        return self.told[-1]

    def tell(self) -> None:
        told, self.told = self.told, []
        for each in told:
            each.tell()


class Worker:
    """One that serves a peer: what is stored, the exchange with it, and what was answered."""

    def __init__(self, database: Database | None = None, **limits: Any) -> None:
        self.now = 0.0
        self.answers: list[dict[str, Any]] = []
        self.alarms: list[str] = []
        self.vouched: list[Response] = []
        self.database = database or Database()
        self.table = RoutingTable()
        self.asker, self.peer = FakeSession(f"runtime://{A}/1"), FakeSession(f"runtime://{B}/mn")
        for each in (self.asker, self.peer):
            self.table.add_runtime(each)
        self.table.peers[B] = self.peer.runtime_url
        self.table.allocate(OURS, self.asker)
        limits = {"messages": 10, "bytes": 100_000, "seconds": 24 * HOUR, **limits}
        row = Peer.objects.get_or_create(domain=B)[0]
        self.stored = StoredMessages(
            StoreLimits(**limits), self.table, self.database, encrypt, decrypt,
            lambda kind, domain, text: self.alarms.append(kind), self.vouched.append,
        )  # type: ignore[arg-type]  # fmt: skip
        found = stored_messages._stored_rows(row.pk, decrypt)
        self.store = PeerStore(self.stored, row.pk, B, found)
        queue = PeerQueue(100, 1_000_000, lambda: self.now, limits["seconds"])
        self.exchange = PeerExchange(A, B, queue, self._answer, lambda: self.now, self.store)
        self.store.begin(self.exchange)

    def _answer(self, frame: bytes) -> None:
        self.answers.append(json.loads(frame))

    def put(self, value: Any, **body: Any) -> Message:
        sent = message(value, **{"store": True, **body})
        self.exchange.put(sent)
        self.database.tell()
        return sent

    def taken(self) -> list[Any]:
        """What the stub is handed now."""
        found = []
        while (frame := self.exchange.take()) is not None:
            found.append(json.loads(frame)["body"]["value"])
        return found

    @property
    def codes(self) -> list[tuple[str, int]]:
        return [(each["id"], each["body"]["code"]) for each in self.answers]


def rows() -> list[StoredMessage]:
    return list(StoredMessage.objects.order_by("id"))


def test_case_59_a_request_that_says_so_is_stored_and_other_words_store_nothing() -> None:
    assert class_of(message(1, store=True)) is MessageClass.STORED
    for other in (False, "true", 1, None, [True]):
        assert class_of(message(1, store=other)) is MessageClass.REQUEST
    assert class_of(message({"store": True})) is MessageClass.REQUEST
    assert class_of(message(1, "response", store=True, code=200)) is MessageClass.RESPONSE


def test_case_59_what_waits_outlives_the_worker_and_is_answered_then() -> None:
    first = Worker()
    first.put(1, idToken="secret")
    first.put(2)
    assert first.codes == [("m1", 100), ("m2", 100)]
    assert all("secret" not in each.sealed for each in rows())
    second = Worker()
    assert second.taken() == [1, 2]
    assert json.loads(second.exchange.taken_in(response("m1")).frame)["body"]["code"] == 200
    assert [each.key for each in rows()] == [rows()[0].key]
    assert second.asker.has_asked(OURS, "m1", second.peer.id, 0.0), "who asked is known again"
    assert second.vouched == []
    second.exchange.taken_in(response("m2"))
    assert rows() == []
    assert Worker().taken() == []


def test_case_59_what_has_left_and_was_not_answered_is_sent_again_by_the_next_worker() -> None:
    first = Worker()
    first.put(1)
    assert first.taken() == [1]
    assert Worker().taken() == [1]


def test_what_leaves_before_it_was_written_is_said_to_be_stored_once_it_has_to_wait_again() -> None:
    worker = Worker()
    for value in (1, 2):
        worker.exchange.put(message(value, store=True))
    assert worker.taken() == [1, 2]
    worker.database.tell()
    assert worker.codes == []
    worker.exchange.taken_in(response("m1"))
    for _ in range(2):
        worker.now += SOON
        worker.exchange.fail_asked("it ended")
        assert worker.codes == [("m2", 100)]
        assert worker.taken() == [2]


def test_case_59_one_whose_time_is_over_is_answered_and_kept_for_a_person() -> None:
    worker = Worker()
    worker.put(1)
    worker.now = 24 * HOUR - 1
    worker.exchange.expire()
    assert worker.codes == [("m1", 100)]
    worker.now = 24 * HOUR
    worker.exchange.expire()
    assert worker.codes[1:] == [("m1", 504)]
    (row,) = rows()
    assert row.set_aside_at is not None
    assert "could not be reached" in row.reason
    assert worker.alarms == [SET_ASIDE_ALARM]
    assert worker.exchange.counters.set_aside == 1
    assert Worker().taken() == []


def test_one_whose_time_was_over_while_nobody_served_the_peer_is_answered_too() -> None:
    Worker().put(1)
    StoredMessage.objects.update(until=timezone.now() - timedelta(seconds=1))
    later = Worker()
    later.exchange.expire()
    assert later.codes == [("m1", 504)]


def test_when_the_way_ends_a_stored_one_waits_again_before_what_came_later() -> None:
    worker = Worker()
    worker.put(1)
    worker.put(2)
    assert worker.taken() == [1, 2]
    worker.exchange.put(message(3))
    worker.now = SOON
    worker.exchange.fail_asked("it ended")
    assert worker.taken() == [1, 2, 3]
    assert worker.codes == [("m1", 100), ("m2", 100)]
    assert len(rows()) == 2


def test_a_request_is_answered_by_the_session_that_the_peer_has_when_its_own_has_ended() -> None:
    worker = Worker()
    asked = message(1, store=False)
    worker.exchange.put(asked)
    assert worker.taken() == [1]
    worker.table.remove_runtime(worker.peer)
    again = FakeSession(worker.peer.runtime_url)
    worker.table.add_runtime(again)
    worker.exchange.fail_asked("it ended")
    assert worker.codes == [("m1", 503)]
    assert worker.asker.has_asked(OURS, asked.id_key, again.id, 0.0)


def test_case_60_one_that_ends_the_way_each_time_is_set_aside_and_the_rest_flows() -> None:
    worker = Worker()
    for value in (1, "poison", 3):
        worker.put(value)
    delivered, lives = [], 0
    while len(delivered) < 3 and lives < 20:
        lives += 1
        given = worker.taken()
        if "poison" in given:
            worker.exchange.put(message("other"))
            worker.exchange.fail_asked("the sandbox ended")
            continue
        for value in given:
            delivered.append(value)
            worker.exchange.taken_in(response(f"m{value}"))
    assert set(delivered) == {1, 3, "other"}
    assert lives <= ATTEMPTS + 3
    (row,) = rows()
    assert (row.set_aside_at is not None, "the sandbox ended" in row.reason) == (True, True)
    assert ("mpoison", 502) in worker.codes
    assert worker.alarms == [SET_ASIDE_ALARM]


def test_case_60_while_one_is_tried_again_other_requests_pass_it() -> None:
    worker = Worker()
    worker.put(1)
    worker.put(2)
    worker.taken()
    worker.exchange.fail_asked("it ended")
    worker.exchange.put(message(3))
    assert worker.taken() == [1, 3], "2 waits for what becomes of 1"
    worker.now += SOON
    assert worker.taken() == [2]
    assert rows()[0].set_aside_at is None


def test_what_a_peer_is_silent_about_is_answered_and_kept_for_a_person() -> None:
    worker = Worker()
    worker.put(1)
    worker.taken()
    worker.now = ASKED_SECONDS + 1
    worker.exchange.expire()
    (row,) = rows()
    assert (row.set_aside_at is not None, "within 600 s" in row.reason) == (True, True)
    assert worker.codes == [("m1", 100), ("m1", 504)]
    assert worker.alarms == [SET_ASIDE_ALARM]
    assert worker.exchange.counters.unanswered == 1
    with pytest.raises(NotCarried):
        worker.exchange.taken_in(response("m1"))


def test_when_a_socket_is_lost_a_stored_one_goes_again_and_the_rest_stays_asked() -> None:
    worker = Worker()
    worker.put(1)
    worker.exchange.put(message(2))
    assert worker.taken() == [1, 2]
    worker.now = SOON
    worker.exchange.send_again("lost")
    assert worker.taken() == [1]
    worker.exchange.taken_in(response("m2"))
    worker.exchange.taken_in(response("m1"))
    assert rows() == []
    with pytest.raises(NotCarried):
        worker.exchange.taken_in(response("m1"))


def test_the_response_to_the_first_time_is_taken_before_one_has_gone_again() -> None:
    worker = Worker()
    worker.put(1)
    worker.put(2)
    worker.taken()
    worker.exchange.send_again("lost")
    with pytest.raises(NotCarried):
        worker.exchange.taken_in(response("m1", f"hyperty://{B}/2"))
    worker.exchange.taken_in(response("m1", code=100))
    worker.exchange.taken_in(response("m1"))
    assert worker.taken() == [2]
    assert len(rows()) == 1
    with pytest.raises(NotCarried):
        worker.exchange.taken_in(response("m1"))


def test_what_has_never_left_is_answered_by_nobody() -> None:
    worker = Worker()
    worker.put(1)
    with pytest.raises(NotCarried):
        worker.exchange.taken_in(response("m1"))
    assert len(rows()) == 1


def test_case_60_one_that_costs_the_socket_each_time_is_set_aside() -> None:
    worker = Worker()
    worker.put(1)
    for _ in range(ATTEMPTS):
        assert worker.taken() == [1]
        worker.exchange.send_again("the socket was lost")
    assert worker.codes == [("m1", 100), ("m1", 502)]
    assert "the socket was lost" in rows()[0].reason


@pytest.mark.parametrize("limits", [{"messages": 2}, {"bytes": 2 * 150}])
def test_so_much_is_stored_for_a_peer_and_no_more(limits: dict[str, int]) -> None:
    worker = Worker(**limits)
    size = len(message(1, store=True).frame)
    assert 100 < size < 150
    for value in (1, 2, 3):
        worker.put(value)
    assert worker.codes == [("m1", 100), ("m2", 100), ("m3", 503)]
    assert len(rows()) == 2
    assert worker.exchange.counters.full == 1
    worker.taken()
    worker.exchange.taken_in(response("m1"))
    worker.put(4)
    assert worker.codes[-1] == ("m4", 100)
    again = Worker(worker.database, **limits)
    again.put(5)
    assert again.codes == [("m5", 503)], "what is found counts as well"


@pytest.mark.parametrize("is_known", [True, False])
def test_case_59_the_response_is_vouched_for_if_whoever_asked_is_at_another_worker(
    is_known: bool,
) -> None:
    """What that worker knew of it may be forgotten by then, or have ended with it."""
    worker = Worker()
    if is_known:
        worker.asker.is_here = False
    else:
        worker.table = worker.stored._table = RoutingTable()
        worker.table.add_runtime(worker.peer)
        worker.table.peers[B] = worker.peer.runtime_url
    worker.put(1)
    worker.taken()
    worker.exchange.taken_in(response("m1"))
    assert worker.vouched == [Response(OURS, "m1", worker.peer.id)] * 2, "of 100, and of 200"


def test_on_a_full_disk_who_sent_it_is_told_and_nothing_else_is_held_up() -> None:
    worker = Worker()
    worker.put(1)
    worker.database.is_full = True
    worker.put(2)
    worker.exchange.put(message(3))
    assert worker.codes == [("m1", 100), ("m2", 503)]
    assert worker.taken() == [1, 3]
    worker.exchange.taken_in(response("m1"))  # its row cannot go now
    worker.database.is_full = False
    worker.put(4)
    assert worker.codes[-1] == ("m4", 100)
    assert Worker().taken() == [1, 4], "with the same id, which lets its receiver see that"


def test_a_stored_one_that_an_operator_discards_is_stored_no_more() -> None:
    worker = Worker()
    worker.put(1)
    worker.exchange.discard(None)
    assert worker.codes == [("m1", 100), ("m1", 503)]
    assert rows() == []


def test_when_a_peer_is_served_no_more_what_is_stored_stays_and_nobody_is_told_otherwise() -> None:
    worker = Worker()
    worker.put(1)
    worker.taken()
    worker.put(2)
    worker.exchange.put(message(3))
    worker.exchange.fail_all("paused")
    assert worker.codes == [("m1", 100), ("m2", 100), ("m3", 503)] or worker.codes == [
        ("m2", 100), ("m3", 503),
    ]  # fmt: skip
    assert Worker().taken() == [1, 2]


def test_when_a_peer_is_removed_everybody_is_told() -> None:
    worker = Worker()
    worker.put(1)
    worker.exchange.put(message(2))
    worker.taken()
    worker.put(3)
    worker.exchange.discard_for_good()
    assert worker.codes == [("m1", 100), ("m3", 100), ("m2", 503), ("m1", 503), ("m3", 503)]
    assert rows() == []


def test_two_of_one_sender_with_the_same_id_leave_no_row_behind() -> None:
    worker = Worker()
    worker.put(1)
    worker.put(1)
    assert worker.taken() == [1, 1]
    worker.exchange.taken_in(response("m1"))
    assert rows() == []


def test_what_was_sealed_with_another_key_is_set_aside(settings: Any) -> None:
    Worker().put(1)
    settings.SECRET_KEY, settings.KEY_ENCRYPTION_KEY = "another", "another"
    assert Worker().taken() == []
    assert "sealed" in rows()[0].reason


def test_what_is_set_aside_is_bounded_and_goes_after_a_week(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored_messages, "SET_ASIDE_AT_MOST", 2)
    worker = Worker()
    for value in range(4):
        worker.put(value)
    worker.now = 25 * HOUR
    worker.exchange.expire()
    assert len(rows()) == 2
    StoredMessage.objects.update(set_aside_at=timezone.now() - timedelta(days=6, hours=23))
    stored_messages.forget_old()
    assert len(rows()) == 2
    StoredMessage.objects.update(set_aside_at=timezone.now() - timedelta(days=7, seconds=1))
    worker.stored.follow()
    assert rows() == []
