"""The rows that reservations leave in the traffic record."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pyarrow.compute as pc
import pytest

from msgnode.core.errors import BadMessage, Unavailable
from msgnode.core.record import SessionRecord
from msgnode.qos.component import QosConnector
from msgnode.qos.service import ReservationRows
from msgnode.qos.sweep import Ended
from msgnode.traffic.columns import sessions_table

CALLER: Any = SimpleNamespace(
    id=str(uuid.uuid4()), runtime_url="runtime://d/1", speaker=SimpleNamespace(identity=None)
)


class Broker:
    """Grants video, and refuses as it is told."""

    refusal: Exception | None = None

    async def reserve(self, order: Any, owner: Any) -> dict[str, Any]:
        if self.refusal is not None:
            raise self.refusal
        return {"reservationId": "r1", "class": "video"}


class Followed:
    """A connector whose rows are kept."""

    def __init__(self) -> None:
        self.rows: list[SessionRecord] = []
        self.broker = Broker()
        self.notes = ReservationRows(self.rows.append)
        self.connector = QosConnector(
            "d",
            lambda: self.broker,  # type: ignore[arg-type, return-value]
            "",
            lambda: ("connected", ""),
            self.notes.asked,
        )

    async def reserve(self, **value: Any) -> None:
        body = {"resource": "/reservations", "value": value}
        message: Any = SimpleNamespace(type="create", fields=lambda: body)
        await self.connector.answer(message, CALLER)

    @property
    def told(self) -> list[tuple[str, str, int]]:
        return [(str(row.event), row.ending, row.code) for row in self.rows]


async def test_what_is_granted_and_what_is_refused_is_told_by_class_and_code() -> None:
    followed = Followed()
    await followed.reserve(flows=[{"mediaType": "audio"}, {"mediaType": "video"}])
    followed.broker.refusal = Unavailable("no room")
    with pytest.raises(Unavailable):
        await followed.reserve(**{"class": "video"})
    assert followed.told == [("reserved", "video", 200), ("reservation-refused", "video", 503)]
    assert {row.session for row in followed.rows} == {CALLER.id}


async def test_words_of_a_client_do_not_become_classes_of_the_record() -> None:
    followed = Followed()
    followed.broker.refusal = BadMessage("no such class")
    for number in range(3):
        with pytest.raises(BadMessage):
            await followed.reserve(**{"class": f"made up {number}"})
    assert followed.told == [("reservation-refused", "", 400)] * 3


def test_more_bytes_than_one_row_can_tell_are_told_by_several() -> None:
    followed = Followed()
    for size in (5_000_000_000, -3_000_000_000, 0):
        followed.notes.relayed("video", size)
    table = sessions_table(followed.rows, "node", "worker")
    assert pc.sum(table["size"]).as_py() == 2_000_000_000
    assert set(table["event"].to_pylist()) == {"relayed"}


def test_an_end_is_told_with_its_reason_and_how_long_it_lasted() -> None:
    followed = Followed()
    session = uuid.uuid4()
    followed.notes.ended(Ended("r1", session.hex, "runtime://d/1", "ended", "expired", 61.5))
    (row,) = sessions_table(followed.rows, "node", "worker").to_pylist()
    assert (row["event"], row["outcome"], row["lasted_s"]) == ("reservation-ended", "expired", 61)
    assert (row["session"], row["runtime"]) == (str(session), "runtime://d/1")
