"""A pipeline between two sessions, and parts of it that keep what they are asked, and by whom."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from msgnode.bus.holders import NO_OTHERS
from msgnode.bus.ports import DeliveryResult, Response
from msgnode.bus.refusals import NO_FOREIGN_DOMAINS, Bounces
from msgnode.bus.return_paths import ReturnPath
from msgnode.bus.routes import ComponentBook
from msgnode.bus.table import RoutingTable
from msgnode.core.decision import NOT_APPLICABLE, Decision, Direction
from msgnode.core.pending import Pending
from tests.fakes import (
    DOMAIN,
    FakeAdmission,
    FakeCaller,
    FakeComponent,
    FakeRecorder,
    FakeSession,
    pipeline,
)

ONE, TWO = "runtime://localhost/1", "runtime://localhost/2"
COMPONENT = "domain://fake.localhost"
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
            DOMAIN,
            self.table,
            ComponentBook(components),
            parts.get("holders", NO_OTHERS),
            parts.get("foreign", NO_FOREIGN_DOMAINS),
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


class Admission(FakeAdmission):
    """Keeps who is admitted with what; refuses everybody if it has an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[Any] = []
        self.error = error

    def authenticate(self, message: Any, caller: Any) -> None:
        self.asked.append(("authenticate", message.type, caller.speaker.runtime_url))
        if self.error is not None:
            raise self.error

    def authorize(self, message: Any, caller: Any) -> Any:
        self.asked.append(("authorize", message.type, caller.speaker.runtime_url))
        if self.error is not None:
            raise self.error
        return super().authorize(message, caller)


@dataclass
class Policies:
    """Decides by direction, and keeps over whom."""

    decisions: dict[str, Decision] = field(default_factory=dict)
    asked: list[Any] = field(default_factory=list)
    is_idle: bool = False

    def enforce(self, message: Any, speaker: Any, direction: Direction) -> Decision:
        self.asked.append((message.type, speaker.runtime_url, direction))
        return self.decisions.get(direction.value, NOT_APPLICABLE)


class Caller(FakeCaller):
    """Keeps for whom it was to wait."""

    def __init__(self, session: FakeSession | None) -> None:
        super().__init__(session)
        self.waited_for: list[str] = []

    def wait_for(self, reader: Any) -> None:
        self.waited_for.append(reader.runtime_url)


class Waits:
    """A lease that is not certain until its fact is there."""

    until = 0.0

    def __init__(self, times: int = 1) -> None:
        self.times = times

    def check(self) -> None:
        if self.times:
            self.times -= 1
            raise Pending("The lease", lambda known: None)


class Component(FakeComponent):
    """Keeps who asked it what."""

    def __init__(self, answer: Any, address: str = COMPONENT) -> None:
        super().__init__(answer, address)
        self.callers: list[Any] = []
        self.messages: list[Any] = []
        self.revoked_messages: list[str] = []

    def revoke(self, message: Any, body: Any, caller: Any) -> None:
        super().revoke(message, body, caller)
        self.revoked_messages.append(message.sender)

    def answer(self, message: Any, caller: Any) -> Any:
        self.callers.append(caller)
        self.messages.append(message)
        return super().answer(message, caller)


class Ear(FakeSession):
    """Keeps how it was handed each frame, and what came beside it."""

    def __init__(self, runtime_url: str, is_here: bool = True) -> None:
        super().__init__(runtime_url)
        self.is_here = is_here
        self.beside: list[Any] = []
        self.invited: list[str] = []

    def deliver_request(self, frame: bytes, path: ReturnPath) -> DeliveryResult:
        self.beside.append(path)
        return self.deliver(frame)

    def deliver_response(self, frame: bytes, response: Response) -> DeliveryResult:
        self.beside.append(response)
        return self.deliver(frame)

    def deliver_traced(self, frame: bytes, beside: Any, traceparent: str) -> DeliveryResult:
        self.beside.append(beside)
        return self.deliver(frame)

    def has_invited(self, stub: str) -> None:
        self.invited.append(stub)
