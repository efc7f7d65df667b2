"""Which session an `open` resumes and which makes room: the choice, without sockets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from msgnode.core.identity import Identity, Speaker
from msgnode.sessions import selection

ANN, BEN = Identity("https://idp", "ann"), Identity("https://idp", "ben")


@dataclass(eq=False)
class Left:
    """A session of the runtime URL as the choice sees it."""

    name: str
    is_connected: bool = False
    identity: Identity | None = None
    source: str = "home"

    @property
    def speaker(self) -> Speaker:
        return speaker(self.identity, self.source)


def speaker(identity: Identity | None = None, source: str = "home") -> Speaker:
    return Speaker("", "runtime://d/1", remote_address=source, identity=identity)


def name(found: Any) -> str:
    return found.name if found is not None else ""


def resumed(*sessions: Any, by: Speaker | None = None, resume: str = "when-idle") -> str:
    return name(selection.to_resume(sessions, by or speaker(), resume))


def ended(*sessions: Any, by: Speaker | None = None) -> str:
    return name(selection.to_end(sessions, by or speaker()))


@pytest.mark.parametrize("resume", ["when-idle", "always"])
def test_the_newest_detached_session_is_resumed_beside_live_ones(resume: str) -> None:
    sessions = (Left("old"), Left("new"), Left("live", is_connected=True))
    assert resumed(*sessions, resume=resume) == "new"
    assert resumed(Left("live", is_connected=True), resume=resume) == ""
    assert resumed(resume=resume) == ""


def test_with_proof_only_the_verified_subject_resumes() -> None:
    sessions = (Left("ann", identity=ANN), Left("nobody"))
    assert resumed(*sessions, by=speaker(ANN), resume="with-proof") == "ann"
    assert resumed(*sessions, by=speaker(BEN), resume="with-proof") == ""
    assert resumed(*sessions, resume="with-proof") == ""


def test_a_subjects_session_is_resumed_by_nobody_else_whatever_the_setting() -> None:
    assert resumed(Left("ann", identity=ANN), resume="always") == ""
    assert resumed(Left("nobody"), Left("ann", identity=ANN), resume="always") == "nobody"


def test_the_oldest_detached_session_makes_room() -> None:
    assert ended(Left("live", is_connected=True), Left("old"), Left("new")) == "old"
    assert ended(Left("live", is_connected=True)) == ""


def test_sessions_from_the_speakers_own_address_make_room_first() -> None:
    sessions = (Left("owner 1"), Left("stranger 1", source="away"), Left("owner 2"))
    assert ended(*sessions, by=speaker(source="away")) == "stranger 1"
    assert ended(*sessions) == "owner 1"
    assert ended(*sessions, by=speaker(source="train")) == "owner 1"


def test_a_subjects_session_makes_room_for_that_subject_only() -> None:
    sessions = (Left("ann", identity=ANN), Left("ben", identity=BEN))
    assert ended(*sessions) == ""
    assert ended(*sessions, by=speaker(BEN)) == "ben"
