"""Who is told of an invitation, and when."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from msgnode import models
from msgnode.bus.notices import Notices
from msgnode.bus.ports import NoPolicies
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Call
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Identity
from msgnode.core.record import SessionEvent, SessionRecord
from msgnode.invitations import delivery, endpoints, wire
from msgnode.invitations.delivery import InvitationDelivery
from tests.fakes import FakeRecorder, FakeSession
from tests.invitations.conftest import RUNTIME, invitation

ISSUER = "http://localhost/o"
pytestmark = pytest.mark.django_db(transaction=True)


class Writer:
    """Runs calls as the writer does, in a thread, one after the other."""

    def submit(self, *changes: Any, result: Any = None) -> asyncio.Future[Any]:
        async def run() -> None:
            for change in changes:
                assert isinstance(change, Call)
                await sync_to_async(change.action)()

        return asyncio.ensure_future(run())


class KilledWriter(Writer):
    """Of a worker that is killed after the commit, before it hears of it."""

    def submit(self, *changes: Any, result: Any = None) -> asyncio.Future[Any]:
        super().submit(*changes)
        return asyncio.get_running_loop().create_future()


class Scene:
    """A worker with its sessions."""

    def __init__(self, writer: Writer | None = None) -> None:
        self.table = RoutingTable()
        self.now = 0.0
        voice = Notices("domain://idm.localhost", "identity", NoPolicies(), FakeRecorder())
        self.delivery = InvitationDelivery(
            ISSUER, self.table, writer or Writer(), voice, lambda: self.now
        )

    def come(self, subject: str, url: str = RUNTIME, **more: Any) -> FakeSession:
        session = FakeSession(url, **more)
        session.speaker = replace(session.speaker, identity=Identity(ISSUER, subject))
        self.table.add_runtime(session)
        return session

    async def settle(self) -> None:
        """Until nothing of this loop is under way but the test."""
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)


@sync_to_async
def leave(endpoint: models.PushEndpoint, name: str = "i1", seconds: int = 60) -> None:
    said = wire.read(json.dumps(invitation(name)).encode(), time.time())
    endpoints.leave(endpoint.pk, said, seconds)


def arrived(event: SessionEvent = SessionEvent.RESUMED) -> SessionRecord:
    return SessionRecord(0.0, "s", RUNTIME, event)


async def test_the_one_whose_it_is_hears_it_once(endpoint: models.PushEndpoint) -> None:
    scene = Scene()
    mallory, old, bob = (scene.come(who) for who in ("999", endpoint.subject, endpoint.subject))
    away = scene.come(endpoint.subject, is_connected=False)
    await leave(endpoint)
    for _ in range(2):
        scene.delivery.left({"runtime_url": RUNTIME})
        await scene.settle()
    [frame] = bob.frames
    said = json.loads(frame)
    assert (said["type"], said["from"]) == ("update", "domain://idm.localhost")
    assert said["to"] == f"{RUNTIME}/invitations"
    assert said["body"]["value"]["invitation"] == "i1"
    assert mallory.frames == old.frames == away.frames == []


async def test_who_comes_later_hears_it_then(endpoint: models.PushEndpoint) -> None:
    scene = Scene()
    await leave(endpoint)
    scene.delivery.left({"runtime_url": RUNTIME})
    await scene.settle()
    bob = scene.come(endpoint.subject)
    scene.delivery.stepped(arrived(SessionEvent.LOST))
    await scene.settle()
    assert bob.frames == []
    scene.delivery.stepped(arrived())
    await scene.settle()
    assert len(bob.frames) == 1


async def test_a_worker_that_starts_knows_for_whom_something_waits(
    endpoint: models.PushEndpoint,
) -> None:
    await leave(endpoint)
    scene = Scene()
    bob = scene.come(endpoint.subject)
    await sync_to_async(scene.delivery.load)()
    scene.delivery.stepped(arrived(SessionEvent.OPENED))
    await scene.settle()
    assert len(bob.frames) == 1


async def test_of_two_workers_one_hands_it_over(endpoint: models.PushEndpoint) -> None:
    scenes = [Scene(), Scene()]
    bobs = [scene.come(endpoint.subject) for scene in scenes]
    await leave(endpoint)
    for scene in scenes:
        scene.delivery.left({"runtime_url": RUNTIME})
    await scenes[0].settle()
    assert sum(len(bob.frames) for bob in bobs) == 1


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "LEASE", timedelta(milliseconds=200))
    monkeypatch.setattr(delivery, "_MARGIN", 0.01)


async def heard(session: FakeSession, number: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(20):
        while len(session.frames) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return [json.loads(each) for each in session.frames]


@pytest.mark.usefixtures("short_lease")
async def test_what_a_killed_worker_had_taken_is_handed_over_by_the_next(
    endpoint: models.PushEndpoint,
) -> None:
    killed, alive = Scene(KilledWriter()), Scene()
    lost, bob = (each.come(endpoint.subject) for each in (killed, alive))
    await leave(endpoint)
    killed.delivery.left({"runtime_url": RUNTIME})
    await killed.settle()
    alive.delivery.left({"runtime_url": RUNTIME})
    [said] = await heard(bob, 1)
    assert said["body"]["value"]["invitation"] == "i1"
    assert lost.frames == []
    await alive.settle()
    assert alive.delivery._later == {}
    assert await sync_to_async(endpoints.waiting_runtimes)() == set()


@pytest.mark.usefixtures("short_lease")
async def test_who_wakes_up_after_the_lease_hands_nothing_over(
    endpoint: models.PushEndpoint,
) -> None:
    scene = Scene()
    bob = scene.come(endpoint.subject)
    await leave(endpoint)
    scene.delivery.left({"runtime_url": RUNTIME})
    scene.now += 1  # frozen while the database answered
    await scene.settle()
    assert bob.frames == []
    await heard(bob, 1)  # at the next look
    await scene.settle()
    scene.delivery.stop()


@pytest.mark.usefixtures("short_lease")
async def test_one_whose_runtime_left_meanwhile_waits_for_it(endpoint: models.PushEndpoint) -> None:
    scene = Scene()
    bob = scene.come(endpoint.subject)
    await leave(endpoint)
    scene.delivery.left({"runtime_url": RUNTIME})
    bob.is_connected = False
    await scene.settle()
    assert bob.frames == []
    bob.is_connected = True
    scene.delivery.stepped(arrived())
    await heard(bob, 1)
    await scene.settle()
    assert scene.delivery.steps == {"delivered": 1}
    scene.delivery.stop()


async def test_one_that_is_withdrawn_before_it_was_heard_is_not_heard(
    endpoint: models.PushEndpoint,
) -> None:
    scene = Scene()
    bob = scene.come(endpoint.subject)
    await leave(endpoint)
    for _ in range(2):
        await sync_to_async(endpoints.withdraw)(endpoint.pk, "i1")
    scene.delivery.left({"runtime_url": RUNTIME})
    await scene.settle()
    await leave(endpoint)  # the same again
    scene.delivery.left({"runtime_url": RUNTIME})
    await scene.settle()
    assert bob.frames == []


async def test_that_it_was_withdrawn_is_said_once_after_it_was_heard(
    endpoint: models.PushEndpoint,
) -> None:
    scene = Scene()
    bob = scene.come(endpoint.subject)
    await leave(endpoint, seconds=2)
    scene.delivery.left({"runtime_url": RUNTIME})
    await scene.settle()
    for _ in range(2):
        await sync_to_async(endpoints.withdraw)(endpoint.pk, "i1")
        scene.delivery.left({"runtime_url": RUNTIME})
        await scene.settle()
    _, said = await heard(bob, 2)
    assert (said["type"], said["body"]["value"]) == ("delete", {"invitation": "i1"})
    assert len(bob.frames) == 2
    assert scene.delivery.steps == {"delivered": 1, "withdrawal_delivered": 1}


async def test_one_that_is_withdrawn_while_it_is_handed_over_is_followed_by_that(
    endpoint: models.PushEndpoint,
) -> None:
    await leave(endpoint)
    taken, _ = await sync_to_async(endpoints.take)(RUNTIME, {endpoint.subject})
    await sync_to_async(endpoints.withdraw)(endpoint.pk, "i1")
    await sync_to_async(endpoints.handed_over)(taken)  # late
    [withdrawal], _ = await sync_to_async(endpoints.take)(RUNTIME, {endpoint.subject})
    assert withdrawal.is_withdrawal


async def test_for_whom_nothing_waits_nothing_is_read(endpoint: models.PushEndpoint) -> None:
    scene = Scene()
    bob = scene.come(endpoint.subject)
    await leave(endpoint)
    scene.delivery.stepped(arrived())  # of a worker that was not told
    await scene.settle()
    assert bob.frames == []
    scene.delivery.left({"runtime_url": "runtime://localhost/other"})
    scene.now += wire.MAX_SECONDS + 1
    scene.delivery.left({"runtime_url": RUNTIME})
    assert list(scene.delivery._waiting) == [RUNTIME]  # the other one's time is over


async def test_one_that_could_not_be_handed_over_is_counted_and_tried_again(
    endpoint: models.PushEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()
    bob = scene.come(endpoint.subject)
    await leave(endpoint)
    before = FAULTS.counts["invitation"]
    with monkeypatch.context() as broken:
        broken.setattr(scene.delivery._notices, "send", None)
        scene.delivery.left({"runtime_url": RUNTIME})
        await scene.settle()
    assert FAULTS.counts["invitation"] == before + 1
    assert bob.frames == []
    assert list(scene.delivery._later) == [RUNTIME]  # it looks again by itself
    await sync_to_async(models.Invitation.objects.update)(taken_until="2020-01-01T00:00:00Z")
    scene.delivery.stepped(arrived())
    await scene.settle()
    assert len(bob.frames) == 1
    scene.delivery.stop()
