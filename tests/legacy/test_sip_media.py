"""The calls of a SIP network at an rtpengine: their ids, their end, and what a worker leaves."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from msgnode.core.errors import NodeError, Unavailable
from msgnode.legacy import sip_media
from msgnode.legacy.sip_media import (
    LEFT_AT_ONCE,
    LEFT_PAUSE,
    LEFT_TRIES,
    MAX_LEFT,
    NUMBERS,
    LeftMedia,
    Rtpengine,
    id_of,
)

from .fake_proxy import BOB, SDP, sip_linked
from .fake_rtpengine import FakeRtpengine, fake_rtpengine
from .fake_server import SECONDS
from .linked import OURS, Kept

SIGNED = "Contact: <sip:bob@127.0.0.1:9>"
MARK = "msgnode-0123456789abcdef"
FOREIGN = {"c1", "msgnode-", MARK, f"{MARK}-", f"{MARK}-{NUMBERS}", f"{MARK[:-1]}e-0"}


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110  (a test's condition)
            await asyncio.sleep(0.005)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """A limit that is reached sooner, where what it is makes no difference."""
    number = 2 * LEFT_AT_ONCE
    monkeypatch.setattr(sip_media, "NUMBERS", number)
    return number


@contextmanager
def frozen(*engines: FakeRtpengine) -> Iterator[None]:
    """Freeze these, and have that noticed soon: how long it takes is nothing that is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sip_media, "TRY_SECONDS", 0.02)
        for each in engines:
            each.is_frozen = True
        yield
    for each in engines:
        each.is_frozen = False


class Left:
    """What a worker does of what was left, on a clock of the test's; `kept` is what is stored."""

    def __init__(self, *marks: tuple[str, str]) -> None:
        self.now = 0.0
        self.kept = set(marks)
        self.woken = 0
        self.media = LeftMedia(cast(Any, self), lambda: self.now)
        for each in marks:
            self.media.restore(*each)

    def keep(self, kind: str, here: str, there: str, is_kept: bool = True) -> None:
        assert kind == "media"
        self.kept.add((here, there)) if is_kept else self.kept.discard((here, there))

    def wake(self) -> None:
        self.woken += 1

    async def step(self) -> None:
        """What is due, until it is done."""
        before = self.woken
        assert self.media.due <= self.now
        self.media.tick()
        await until(lambda: self.woken > before)

    async def end(self) -> None:
        while self.media.due <= self.now:
            await self.step()


class Calling:
    """An Rtpengine, and what it says of descriptions."""

    def __init__(self, place: str, mark: str = MARK) -> None:
        self.alarms: list[str] = []
        self.media = Rtpengine(place, mark, self.alarms.append)

    async def change(self, call: str, command: str = "offer") -> str | NodeError:
        said: list[str | NodeError] = []
        self.media.change(command, call, SDP, True, said.append)
        await until(lambda: said)
        return said[0]


async def test_case_54_every_call_that_was_left_is_ended_and_no_other() -> None:
    async with fake_rtpengine() as engine:
        theirs = {id_of(MARK, number) for number in range(NUMBERS)}
        engine.calls = FOREIGN | theirs
        left = Left((MARK, engine.place))
        await left.end()
        assert engine.calls == FOREIGN
        assert (set(engine.deleted), set(engine.commands)) == (theirs, {"delete"})
        assert (left.kept, left.woken) == (set(), NUMBERS / LEFT_AT_ONCE)


async def test_case_54_calls_are_ended_where_they_were_begun() -> None:
    async with fake_rtpengine() as one, fake_rtpengine() as other:
        marks = [(f"msgnode-{number}", each.place) for number, each in enumerate((one, other))]
        for number, engine in enumerate((one, other)):
            engine.calls = {"msgnode-0-0", "msgnode-1-0"} - {f"msgnode-{1 - number}-1"}
        await Left(*marks).end()
        assert (one.calls, other.calls) == ({"msgnode-1-0"}, {"msgnode-0-0"})


@pytest.mark.parametrize("lie", [b"", b"d6:result5:errore", b"d5:callsl2:c1ee", b"\xff" * 60_000])
async def test_case_54_what_rtpengine_says_changes_nothing(lie: bytes) -> None:
    async with fake_rtpengine() as engine:
        engine.calls, engine.lie = FOREIGN | {id_of(MARK, NUMBERS - 1)}, lambda _: lie
        left = Left((MARK, engine.place))
        await left.end()
        assert (engine.calls, left.kept) == (FOREIGN, set())


async def test_case_54_one_that_is_frozen_is_asked_again_later_and_goes_on_where_it_was() -> None:
    async with fake_rtpengine() as engine:
        left = Left((MARK, engine.place))
        await left.step()
        with frozen(engine):
            await left.step()
        assert (len(engine.deleted), left.media.due) == (LEFT_AT_ONCE, LEFT_PAUSE)
        assert left.kept == {(MARK, engine.place)}
        left.now = LEFT_PAUSE
        await left.end()
        assert engine.deleted == [id_of(MARK, number) for number in range(NUMBERS)]
        assert not left.kept


async def test_case_54_one_that_stays_silent_is_given_up_and_the_next_has_its_turn() -> None:
    async with fake_rtpengine() as silent, fake_rtpengine() as engine:
        silent.stop()  # nobody listens there
        left = Left((MARK, silent.place), ("msgnode-1", engine.place))
        for _ in range(LEFT_TRIES):
            assert left.kept == {(MARK, silent.place), ("msgnode-1", engine.place)}
            await left.step()
            left.now = left.media.due
        assert left.kept == {("msgnode-1", engine.place)}
        await left.end()
        assert (len(engine.deleted), left.kept) == (NUMBERS, set())


async def test_case_54_only_the_newest_marks_are_looked_at(few: int) -> None:
    async with fake_rtpengine() as engine:
        marks = [(f"msgnode-{number:016}", engine.place) for number in range(MAX_LEFT + 1)]
        left = Left(*marks)
        assert left.kept == set(marks[1:])
        await left.end()
        assert {each.rpartition("-")[0] for each in engine.deleted} == dict(marks[1:]).keys()
        assert not left.kept


async def test_case_54_a_worker_that_was_frozen_ends_no_call_of_the_one_that_follows() -> None:
    async with fake_rtpengine() as engine:
        left = Left()
        own = left.media.make_mark(engine.place)
        for mark in (MARK, own, "msgnode-later"):
            left.media.restore(mark, engine.place)
        await left.end()
        assert {each.rpartition("-")[0] for each in engine.deleted} == {MARK}
        assert left.kept == {(own, engine.place)}


async def test_a_call_has_an_id_of_ours_which_is_used_again_when_it_has_ended(few: int) -> None:
    async with fake_rtpengine() as engine:
        one = Calling(engine.place)
        for _ in range(few + 1):
            assert await one.change("call") == SDP
            assert len(engine.calls) == 1
            one.media.end("call")
            await until(lambda: not engine.calls)
        assert set(engine.deleted) == {id_of(MARK, number) for number in range(few)}
        one.media.close()


async def test_two_calls_are_two_there_and_the_end_of_one_is_not_that_of_the_other() -> None:
    async with fake_rtpengine() as engine:
        one = Calling(engine.place)
        for call in ("a", "b"):
            assert [await one.change(call, each) for each in ("offer", "answer")] == [SDP, SDP]
        assert engine.calls == {id_of(MARK, 0), id_of(MARK, 1)}
        one.media.end("a")
        one.media.end("nobody's")
        await until(lambda: engine.calls == {id_of(MARK, 1)})
        assert engine.deleted == [id_of(MARK, 0)]
        one.media.close()


async def test_a_call_that_ends_while_it_begins_is_deleted_once_it_has_begun() -> None:
    async with fake_rtpengine() as engine:
        one = Calling(engine.place)
        engine.unanswered = {id_of(MARK, 0)}
        said: list[Any] = []
        one.media.change("offer", "call", SDP, True, said.append)
        one.media.end("call")
        assert await one.change("another") == SDP
        assert set(engine.commands) == {"offer"}
        engine.unanswered.clear()
        await until(lambda: engine.deleted)
        assert (said, engine.calls) == ([SDP], {id_of(MARK, 1)})
        one.media.close()


async def test_an_id_is_not_used_again_before_its_call_is_known_to_have_ended(few: int) -> None:
    async with fake_rtpengine() as engine:
        one = Calling(engine.place)
        for number in range(few):
            assert await one.change(str(number)) == SDP
        assert isinstance(await one.change("one more"), Unavailable)
        with frozen(engine):
            one.media.end("0")
            assert isinstance(await one.change("one more"), Unavailable)
            assert isinstance(await one.change("1"), Unavailable)
            assert one.alarms
        assert engine.calls == {id_of(MARK, number) for number in range(few)}
        assert await one.change("1") == SDP  # it answers: what it was not told is said now
        await until(lambda: engine.deleted == [id_of(MARK, 0)])
        async with asyncio.timeout(SECONDS):
            while isinstance(said := await one.change("one more"), Unavailable):
                pass
        assert said == SDP
        one.media.close()


async def _ringing(linked: Any, engine: FakeRtpengine) -> None:
    """A call from here and one from there, neither of which is answered."""
    linked.node.codes[OURS] = None
    linked.call_out()
    await linked.server.expect("INVITE")
    linked.server.request("INVITE", SDP)
    await linked.until(lambda: linked.last("create"))
    assert len(engine.calls) == 2


async def test_case_54_calls_that_rang_when_a_worker_died_are_ended_at_rtpengine_by_the_next() -> (
    None
):
    kept = Kept()
    async with fake_rtpengine() as engine:
        async with sip_linked(kept=kept, media=engine.place) as linked:
            await _ringing(linked, engine)
            left = set(engine.calls)
            with frozen(engine):  # it hears nothing of the end of this worker
                await linked.link.stop()
        engine.calls = left | {"foreign"}
        async with sip_linked(kept=kept, media=engine.place) as linked:
            id_ = linked.call_out()
            invite = await linked.server.expect("INVITE")
            linked.server.answer(invite, 200, SDP, SIGNED)
            assert (await linked.codes(id_))[-1] == 200
            await linked.until(lambda: len([row for row in kept.rows if row[0] == "media"]) == 1)
            own = engine.calls - {"foreign"}
            assert (len(own), own & left) == (1, set())
            (mark,) = [row[1] for row in kept.rows if row[0] == "media"]
            assert re.fullmatch(rf"{mark}-\d+", own.pop())


async def test_case_54_a_frozen_rtpengine_delays_no_message_of_the_network() -> None:
    kept = Kept()
    async with fake_rtpengine() as engine:
        engine.is_frozen = True
        kept.write("media", MARK, engine.place, True)
        async with sip_linked(kept=kept, media=engine.place) as linked:
            linked.server.on_request = lambda one: (200,) if one.method == "MESSAGE" else None
            for number in range(5):
                assert (await linked.ask(f"m{number}", to=BOB))["code"] == 200
            assert ("media", MARK, engine.place) in kept.rows
            assert not engine.commands


async def test_the_id_that_a_caller_chooses_is_none_at_rtpengine() -> None:
    async with fake_rtpengine() as engine, sip_linked(media=engine.place) as linked:
        linked.node.codes[OURS] = None
        engine.calls.add("the proxy's")
        for tag in ("b1", "b2"):
            sender = f"<sip:bob@sip.example>;tag={tag}"
            linked.server.request("INVITE", SDP, Call_ID="the proxy's", From=sender)
        await linked.until(lambda: len(linked.created()) == 2)
        assert len(engine.calls) == 3  # two that share a Call-ID are two
        assert "the proxy's" not in engine.deleted
