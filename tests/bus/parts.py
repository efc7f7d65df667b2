"""Parts of a pipeline that keep what they are asked, and by whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgnode.bus.ports import DeliveryResult, Response
from msgnode.bus.return_paths import ReturnPath
from msgnode.core.decision import NOT_APPLICABLE, Decision, Direction
from msgnode.core.pending import Pending
from tests.fakes import FakeAdmission, FakeCaller, FakeComponent, FakeSession

COMPONENT = "domain://fake.localhost"


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
