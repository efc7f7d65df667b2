"""Two sessions with a pipeline between them: the stage of tests about the path of a message."""

from __future__ import annotations

import json
from typing import Any

from msgnode.bus.bounces import Bounces
from msgnode.bus.holders import NO_OTHERS
from msgnode.bus.routes import ComponentBook
from msgnode.bus.table import RoutingTable
from tests.fakes import DOMAIN, FakeCaller, FakeComponent, FakeRecorder, FakeSession, pipeline

ONE, TWO = "runtime://localhost/1", "runtime://localhost/2"
TOKEN = "0f8fad5b-d9cb-469f-a165-70867728950e"


class Scene:
    """Two sessions, a pipeline between them, and what it noted and answered."""

    def __init__(self, *components: FakeComponent, **parts: Any) -> None:
        self.table = RoutingTable()
        self.sender, self.target = FakeSession(ONE, TOKEN), FakeSession(TWO)
        self.table.add_runtime(self.sender)
        self.table.add_runtime(self.target)
        self.caller = FakeCaller(self.sender)
        self.recorder = FakeRecorder()
        self.tapped: list[tuple[Any, bytes]] = []
        self.pipeline = pipeline(self.table, *components, recorder=self.recorder, **parts)
        self.bounces = Bounces(
            DOMAIN, self.table, ComponentBook(components), parts.get("holders", NO_OTHERS)
        )
        self.pipeline.watch(lambda record, body: self.tapped.append((record, body)))

    def say(self, type_: str = "create", to: Any = TWO, **fields: Any) -> int:
        """Send a message; its bytes."""
        frame = {"id": 1, "type": type_, "from": ONE, "to": to, "body": {}, **fields}
        text = json.dumps(frame).encode()
        self.pipeline.carry(text, self.caller)
        return len(text)

    @property
    def codes(self) -> list[int]:
        return [answer["body"]["code"] for answer in self.caller.answers]

    def row(self) -> Any:
        """The one row of the record."""
        (row,) = self.recorder.rows
        return row

    def answer(self) -> tuple[int, str]:
        """Code and sender of the one answer."""
        (answer,) = self.caller.answers
        return answer["body"]["code"], answer["from"]
