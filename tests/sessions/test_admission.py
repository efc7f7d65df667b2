"""What a client gets that asks for a session: the decision, without sockets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from msgnode.bus.last_owners import LastOwnerCache
from msgnode.bus.table import RoutingTable
from msgnode.core.errors import Forbidden, TooMany, Unavailable
from msgnode.core.identity import Identity, Speaker
from msgnode.sessions import admission
from msgnode.sessions.admission import AskAlive, Fetch, Open, Refuse, Resume
from msgnode.sessions.session_factory import SessionSettings
from tests.fakes import FakeSession

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
    return name(admission.to_resume(sessions, by or speaker(), resume))


def ended(*sessions: Any, by: Speaker | None = None) -> str:
    return name(admission.to_end(sessions, by or speaker()))


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


URL, TWIN = "runtime://d/1", "hyperty-runtime://d/1"


class Client:
    """A client that asks, with what was found out for it about sockets in the way."""

    handshake = "ws"

    def __init__(self, identity: Identity | None = None, **checked: bool) -> None:
        self.speaker = speaker(identity)
        self.checked = checked


def there(name: str, url: str = URL, **facts: Any) -> FakeSession:
    """A session that is connected, of nobody, at this worker, unless said otherwise."""
    session = FakeSession(url)
    session.id = name
    session.is_connected = facts.get("is_connected", True)
    session.is_here = facts.get("is_here", True)
    session.speaker = Speaker(name, url, identity=facts.get("identity"))
    return session


def asked(*sessions: FakeSession, url: str = URL, by: Any = None, **limits: Any) -> Any:
    """What an `open` gets where there are these sessions."""
    values = {"shares": False, "max_sessions": 50, "max_per_runtime": 3, **limits}
    settings = SessionSettings(
        "always", stores=True, grace=60, outbox_bytes=1, node_address="", **values
    )
    known = admission.Known(settings, RoutingTable(), LastOwnerCache(), {})
    for each in sessions:
        known.table.add_runtime(each)
    return admission.asked(url, by or Client(), known)


def test_a_runtime_that_nobody_has_is_opened_and_one_that_was_left_is_resumed_or_fetched() -> None:
    left = there("left", is_connected=False)
    away = there("away", is_connected=False, is_here=False)
    assert asked() == Open()
    assert asked(left) == Resume(left)
    assert asked(away) == Fetch(away)


@pytest.mark.parametrize("url", [URL, TWIN])
def test_a_socket_in_the_way_is_asked_after_and_what_it_said_decides(url: str) -> None:
    other = there("other", url)
    assert asked(other) == AskAlive([other])
    assert refusal(asked(other, by=Client(other=True))) is Forbidden
    assert refusal(asked(other, by=Client(other=False))) is Unavailable
    assert asked(other, shares=True) == Open()


def test_somebody_who_is_known_is_not_asked_after() -> None:
    assert refusal(asked(there("ann", identity=ANN))) is Forbidden
    assert asked(there("ann", identity=ANN), by=Client(ANN)) == Open()


def test_beside_as_many_as_there_may_be_one_makes_room_or_all_are_asked_after() -> None:
    mine = there("mine", is_connected=False, identity=ANN), there("live", identity=ANN)
    by = Client(ANN)
    assert asked(*mine, by=by, max_per_runtime=2) == Resume(mine[0])
    live = there("one", identity=ANN), there("two", identity=ANN)
    assert asked(*live, by=by, max_per_runtime=2) == AskAlive(list(live))
    by = Client(ANN, one=True, two=True)
    assert refusal(asked(*live, by=by, max_per_runtime=2)) is TooMany


@pytest.mark.parametrize(
    ("has", "wants"), [("runtime://d/1", "runtime://d/1/2"), ("runtime://d/1/2", "runtime://d/1")]
)
def test_nothing_is_opened_below_a_runtime_or_above_somebody_elses(has: str, wants: str) -> None:
    assert refusal(asked(there("one", has), url=wants)) is Forbidden


def test_the_url_of_a_peer_is_the_nodes_own_and_that_is_final() -> None:
    settings = SessionSettings("always", True, True, 60, 1, 50, 3, "")
    known = admission.Known(settings, RoutingTable(), LastOwnerCache(), {})
    known.table.peers = {"b.example": URL}
    found = admission.asked(URL, Client(), known)
    assert refusal(found) is Forbidden
    assert isinstance(found, Refuse)
    assert found.is_final


def test_at_the_limit_of_sessions_one_that_ends_here_makes_room_for_another() -> None:
    ends = there("old", is_connected=False, identity=ANN)
    settings = SessionSettings("with-proof", False, True, 60, 1, 1, 1, "")
    known = admission.Known(settings, RoutingTable(), LastOwnerCache(), {"old": ends})
    known.table.add_runtime(ends)
    assert admission.new(URL, Client(ANN), known) == Open(ends)
    assert refusal(admission.new("runtime://d/2", Client(), known)) is Unavailable


def refusal(found: Any) -> type[Exception]:
    assert isinstance(found, Refuse), found
    return type(found.error)
