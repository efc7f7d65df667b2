"""One frame handed to one listener: what became of it, what goes beside it, who waits for whom."""

from __future__ import annotations

import json
from typing import Any

import pytest

from msgnode.bus.delivery import hand_over
from msgnode.bus.ports import DeliveryResult, Listener
from msgnode.bus.return_paths import ReturnPath
from msgnode.core.faults import FAULTS
from msgnode.core.record import Outcome
from tests.bus.scene import ONE, TOKEN, TWO
from tests.fakes import FakeCaller, FakeSession

WITH_TOKEN = json.dumps({"from": f"{ONE}/{TOKEN}"}).encode()
WITHOUT = json.dumps({"from": ONE}).encode()
PATH = ReturnPath(ONE, "1", "session", ONE)


class Listening(FakeSession):
    """Keeps what it is handed beside frames as well."""

    def __init__(self, *words: str) -> None:
        super().__init__(*words)
        self.paths: list[ReturnPath] = []

    def deliver_request(self, frame: bytes, path: ReturnPath) -> DeliveryResult:
        self.paths.append(path)
        return super().deliver_request(frame, path)


class Broken(FakeSession):
    def deliver(self, frame: bytes) -> DeliveryResult:
        raise RuntimeError("it is broken")


class Waiting(FakeCaller):
    """Keeps whom it must wait for."""

    def __init__(self, session: FakeSession) -> None:
        super().__init__(session)
        self.waits_for: list[Listener] = []

    def wait_for(self, reader: Any) -> None:
        self.waits_for.append(reader)


@pytest.mark.parametrize(
    ("taken", "outcome"),
    [
        (DeliveryResult.WRITTEN, (Outcome.DELIVERED, 1)),
        (DeliveryResult.BEHIND, (Outcome.DELIVERED, 1)),
        (DeliveryResult.QUEUED, (Outcome.QUEUED, 1)),
        (DeliveryResult.DROPPED, (Outcome.DROPPED, 0)),
    ],
)
def test_what_the_listener_says_is_the_outcome_and_only_one_behind_is_waited_for(
    taken: DeliveryResult, outcome: tuple[Outcome, int]
) -> None:
    sender, listener = FakeSession(ONE), FakeSession(TWO)
    listener.taken = taken
    caller = Waiting(sender)
    assert hand_over(WITHOUT, (listener,), sender, caller) == outcome
    assert caller.waits_for == ([listener] if taken is DeliveryResult.BEHIND else [])


def test_a_listener_that_fails_has_not_got_it_and_harms_nobody() -> None:
    sender = FakeSession(ONE)
    outcome = hand_over(WITHOUT, (Broken(TWO),), sender, FakeCaller(sender))
    assert outcome == (Outcome.DROPPED, 0)


def test_only_the_sender_himself_is_given_his_token() -> None:
    sender, listener = FakeSession(ONE, TOKEN), FakeSession(TWO)
    hand_over(WITH_TOKEN, (listener,), sender, FakeCaller(sender))
    hand_over(WITH_TOKEN, (sender,), sender, FakeCaller(sender))
    assert (listener.frames, sender.frames) == ([WITHOUT], [WITH_TOKEN])


@pytest.mark.parametrize("number", [1, 2])
def test_the_log_says_why_a_listener_failed(
    number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(FAULTS, "_logged_at", {})
    sender = FakeSession(ONE)
    listeners = (Broken(TWO), FakeSession(TWO))[:number]
    hand_over(WITHOUT, listeners, sender, FakeCaller(sender))
    (line,) = caplog.records
    assert line.getMessage() == "A failure was kept to one listener."
    assert line.exc_info is not None
    assert str(line.exc_info[1]) == "it is broken"


def test_the_way_back_goes_beside_the_request_to_one_and_to_several() -> None:
    sender, listeners = FakeSession(ONE), (Listening(TWO), Listening(TWO))
    hand_over(WITHOUT, listeners[:1], sender, FakeCaller(sender), PATH)
    hand_over(WITHOUT, listeners, sender, FakeCaller(sender), PATH)
    assert [listener.paths for listener in listeners] == [[PATH, PATH], [PATH]]
