"""What a guest may say: who was invited, where everybody else needs an identity."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from msgnode.core import messages
from msgnode.core.errors import Forbidden, TooMany, Unavailable
from msgnode.core.pending import Pending
from msgnode.invitations import guests, service
from msgnode.invitations.guests import Guests
from msgnode.models import SentInvitation
from msgnode.storage.database_threads import DatabaseThreads
from tests.fakes import FakeSession

ALICE, OBJECT = "hyperty://a.example/alice", "comm://a.example/1"
BOB = "runtime://b.example/bob"
SM = "domain://msg-node.a.example/sm"
pytestmark = pytest.mark.django_db(transaction=True)


class Scene:
    """A worker with a session of Bob's."""

    def __init__(self, threads: DatabaseThreads, bob: FakeSession | None = None) -> None:
        self.bob = bob or FakeSession(BOB)
        self.sessions: dict[str, Any] = {self.bob.id: self.bob}
        self.subscribed: set[str] = set()
        self.accepted: list[Any] = []
        self.missed: list[str] = []
        self.now = time.time()
        self.guests = Guests(
            threads,
            self.sessions,
            SimpleNamespace(
                addresses=(SM,),
                of=lambda session: self.subscribed,
                end=lambda address, session: self.subscribed.discard(address),
            ),
            self.missed.append,
            100,
            self.accepted.append,
            lambda: self.now,
        )

    async def may_say(
        self, to: Any, body: Any = None, type_: str = "create", session: Any = None
    ) -> bool:
        """What comes of a message once it has waited, as the pipeline has it wait."""
        head = {"id": 1, "type": type_, "from": BOB, "to": to}
        message = messages.parse(json.dumps({**head, "body": body or {}}).encode())
        for _ in range(3):
            try:
                return self.guests.may_say(message, session or self.bob)
            except Pending as fact:
                known = asyncio.Event()
                fact.when_known(known.set)
                async with asyncio.timeout(20):
                    await known.wait()
        raise AssertionError("it waits for ever")

    async def accept(self, name: str, session: Any = None) -> bool:
        return await self.may_say(ALICE, {"value": {"invitation": name}}, session=session)


@pytest.fixture
def threads() -> Iterator[DatabaseThreads]:
    made = service.threads()
    yield made
    made.stop()


@pytest.fixture
def scene(threads: DatabaseThreads) -> Scene:
    return Scene(threads)


@sync_to_async
def invite(name: str = "i1", seconds: int = 60, stay: int = 0, resource: str = OBJECT) -> None:
    guests.note_sent(name, "7", ALICE, resource, int(time.time()) + seconds, stay)


@sync_to_async
def change(**columns: Any) -> None:
    SentInvitation.objects.update(**columns)


async def test_case_32_a_guest_reaches_exactly_what_it_was_invited_to(scene: Scene) -> None:
    await invite()
    assert await scene.accept("i1")
    assert scene.accepted == [scene.bob]
    assert len(scene.guests) == 1
    parts = [f"{OBJECT}/changes", f"{OBJECT}/children/"]
    others = ["comm://a.example/2/changes"]
    for to, type_, body in (
        (ALICE, "update", None),
        (OBJECT, "read", None),
        (f"{OBJECT}/subscription", "subscribe", None),
        ([f"{OBJECT}/children/1", ALICE], "update", None),
        (SM, "subscribe", {"resources": parts}),
        (SM, "unsubscribe", {"resource": OBJECT, "resources": parts}),
    ):
        assert await scene.may_say(to, body, type_), (to, type_)
    for to, type_, body in (
        ("comm://a.example/2", "read", None),
        ("comm://a.example/11", "read", None),
        (f"{ALICE}/status", "update", None),
        ("runtime://a.example/alice", "create", None),
        ([OBJECT, "comm://a.example/2"], "read", None),
        ("domain://registry.a.example", "read", {"resource": "user://a.example/alice"}),
        ("domain://msg-node.a.example/address-allocation", "create", {"value": {"number": 1}}),
        (SM, "subscribe", {"resources": [*parts, *others]}),
        (SM, "subscribe", {"resource": "comm://a.example/2", "children": ["x"]}),
        (SM, "read", {"resources": parts}),
    ):
        with pytest.raises(Forbidden, match=OBJECT):
            await scene.may_say(to, body, type_)


async def test_who_was_never_invited_is_no_guest(scene: Scene) -> None:
    await invite()
    assert not await scene.may_say(ALICE)
    assert not await scene.may_say(OBJECT)
    with pytest.raises(Forbidden, match="does not exist"):
        await scene.accept("guessed")
    assert len(scene.guests) == 0


async def test_case_32_after_its_end_everything_is_refused_and_nothing_heard(scene: Scene) -> None:
    await invite(seconds=60)
    assert await scene.accept("i1")
    scene.subscribed |= {f"{OBJECT}/changes", f"{BOB}/status"}
    await scene.guests.look()
    assert f"{OBJECT}/changes" in scene.subscribed
    assert scene.missed == []
    scene.now += 61
    for to in (ALICE, OBJECT):
        with pytest.raises(Forbidden, match="ended"):
            await scene.may_say(to)
    await change(ends_at=timezone.now() - timedelta(seconds=1))
    await scene.guests.look()
    assert scene.subscribed == {f"{BOB}/status"}
    await scene.guests.look()
    assert scene.missed == [scene.bob.id]
    await invite("i2")
    past = timezone.now() - timedelta(seconds=1)
    await change(expires_at=past, ends_at=past)
    for name in ("i1", "i2"):
        with pytest.raises(Forbidden, match="ended"):
            await scene.accept(name)


async def test_who_accepts_may_stay_as_long_as_the_inviter_has_said(scene: Scene) -> None:
    await invite(seconds=60, stay=3600)
    assert await scene.accept("i1")
    scene.now += 3500
    assert await scene.may_say(OBJECT)
    scene.now += 200
    with pytest.raises(Forbidden):
        await scene.may_say(OBJECT)


async def test_the_first_runtime_has_it_in_its_newest_session(
    scene: Scene, threads: DatabaseThreads
) -> None:
    await invite()
    assert await scene.accept("i1")
    mallory, again = FakeSession("runtime://b.example/mallory"), FakeSession(BOB)
    scene.sessions |= {mallory.id: mallory, again.id: again}
    with pytest.raises(Forbidden):
        await scene.accept("i1", mallory)
    assert await scene.accept("i1", again)


async def test_another_worker_reads_what_a_session_has_accepted(
    scene: Scene, threads: DatabaseThreads
) -> None:
    await invite()
    assert await scene.accept("i1")
    other = Scene(threads, scene.bob)
    assert await other.may_say(OBJECT)
    other.subscribed.add(f"{OBJECT}/changes")
    other.guests.forget(scene.bob.id)  # it ends while nobody has looked
    await change(ends_at=timezone.now() - timedelta(seconds=1))
    await other.guests.look()
    assert other.subscribed == set()


async def test_who_is_sent_away_by_his_inviter_is_refused_and_hears_nothing_at_every_worker(
    scene: Scene, threads: DatabaseThreads
) -> None:
    await invite(stay=3600)
    assert await scene.accept("i1")
    other = Scene(threads, scene.bob)
    assert await other.may_say(OBJECT)
    for worker in (scene, other):
        worker.subscribed.add(f"{OBJECT}/changes")
    await sync_to_async(guests.end)("i1", "7")
    for worker in (scene, other):
        await worker.guests.look()
        assert worker.subscribed == set()
        with pytest.raises(Forbidden, match="ended"):
            await worker.may_say(OBJECT)
        with pytest.raises(Forbidden, match="ended"):
            await worker.accept("i1")


async def test_one_that_is_reopened_is_whose_runtime_accepts_it_next(
    scene: Scene, threads: DatabaseThreads
) -> None:
    """The first one to accept it did nothing more; the second one was refused meanwhile."""
    await invite(stay=3600)
    assert await scene.accept("i1")
    phone = FakeSession("runtime://b.example/phone")
    scene.sessions[phone.id] = phone
    with pytest.raises(Forbidden, match="another runtime"):
        await scene.accept("i1", phone)
    other = Scene(threads, scene.bob)  # where the first one's session moves to
    assert await other.may_say(OBJECT)
    for worker in (scene, other):
        worker.subscribed.add(f"{OBJECT}/changes")
    scene.guests.forget(scene.bob.id)
    await sync_to_async(guests.reopen)("i1", "7")
    for worker in (scene, other):
        await worker.guests.look()
        assert worker.subscribed == set()
        assert worker.missed == [scene.bob.id]
    with pytest.raises(Forbidden, match="ended"):
        await other.may_say(OBJECT)
    with pytest.raises(Forbidden):
        await scene.accept("i1", phone)  # so soon the database is not asked again
    scene.now += guests.EVERY
    assert await scene.accept("i1", phone)
    assert await scene.may_say(OBJECT, session=phone)
    other.now += guests.EVERY
    with pytest.raises(Forbidden):
        await other.accept("i1")


async def test_what_is_deleted_counts_no_longer(scene: Scene) -> None:
    await invite()
    assert await scene.accept("i1")
    scene.subscribed.add(f"{OBJECT}/changes")
    await sync_to_async(SentInvitation.objects.all().delete)()
    await scene.guests.look()
    assert scene.subscribed == set()
    with pytest.raises(Forbidden):
        await scene.may_say(OBJECT)


async def test_names_are_not_tried_without_end(scene: Scene) -> None:
    await invite()
    for number in range(guests.MAX_TRIES):
        with pytest.raises(Forbidden, match="does not exist"):
            await scene.accept(f"guess{number}")
    with pytest.raises(Forbidden, match="too many"):
        await scene.accept("i1")


async def test_without_an_answer_of_the_database_nobody_is_a_guest(scene: Scene) -> None:
    class Full:
        async def run(self, call: Any) -> Any:
            raise TooMany("full")

    threads, scene.guests._threads = scene.guests._threads, Full()  # type: ignore[assignment]
    with pytest.raises(Unavailable):
        await scene.may_say(OBJECT)
    scene.guests._threads = threads
    await invite()
    scene.sessions.clear()  # it ends while that is looked up, and leaves nothing
    with pytest.raises(Unavailable):
        await scene.accept("i1")
    assert scene.guests._guests == {}


def test_a_user_has_so_many_that_are_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests, "MAX_PER_USER", 1)
    until = int(time.time()) + 60
    guests.note_sent("i1", "7", ALICE, OBJECT, until, 0)
    guests.note_sent("i2", "8", ALICE, OBJECT, until, 0)
    with pytest.raises(TooMany):
        guests.note_sent("i3", "7", ALICE, OBJECT, until, 0)
    assert not SentInvitation.objects.filter(digest="i1").exists()  # its name is kept nowhere
