"""The handshake of the Matrix-type stubs: `/stub/connect`, with `cmd` frames (cases 12-14)."""

from __future__ import annotations

from typing import Any

import msgspec

from msgnode.core.errors import NodeError
from msgnode.core.pending import NotAtHand

from .connection import Connection
from .rules import CloseCode


class _CommandData(msgspec.Struct):
    runtime_url: str = msgspec.field(name="runtimeURL", default="")


class _Command(msgspec.Struct):
    cmd: str = ""
    type: str = ""
    data: _CommandData = msgspec.field(default_factory=_CommandData)
    body: _CommandData = msgspec.field(default_factory=_CommandData)


_commands = msgspec.json.Decoder(_Command)


class StubConnection(Connection):
    """A socket whose session is named by its URL, or by a `connect` command as first frame."""

    handshake = "stub-connect"

    def _take(self, frame: bytes) -> None:
        command = _command(frame) if self.session is None or b'"cmd"' in frame else None
        if command is None and self.session is not None:
            super()._take(frame)
        elif command is not None and command.cmd == "disconnect" and self.session is not None:
            self._disconnect(command)
        elif command is not None and command.cmd == "connect" and self.session is None:
            self._connect(command, frame)
        elif self.session is None:
            self._refuse(403, "Invalid handshake!")

    def begin(self, runtime_url: str) -> None:
        """Enter the session that the socket's URL names."""
        try:
            self._sessions.enter(runtime_url, self)
        except NotAtHand as fact:
            self.wait_until(fact, lambda: self.begin(runtime_url))
        except NodeError as error:
            self.end(CloseCode.REFUSED, error.description[:100])

    def _connect(self, command: _Command, frame: bytes) -> None:
        runtime_url = command.data.runtime_url or command.body.runtime_url
        try:
            self._sessions.enter(runtime_url, self, self._accept)
        except NotAtHand as fact:
            self.hold(frame, fact)
        except NodeError as error:
            self._refuse(error.code, error.description)

    def _disconnect(self, command: _Command) -> None:
        named = (command.data.runtime_url, command.body.runtime_url)
        if self.session is not None and self.session.runtime_url in named:
            self._sessions.leave(self)

    def _accept(self, body: dict[str, Any]) -> None:
        text = "Connection accepted!" if body["code"] == 200 else body["description"]
        self._answer(body["code"], text)

    def _refuse(self, code: int, text: str) -> None:
        self._answer(code, text)
        self.end(CloseCode.REFUSED, "refused")

    def _answer(self, code: int, text: str) -> None:
        frame = msgspec.json.encode({"cmd": "connect", "response": code, "data": {"msg": text}})
        self.link.write(frame)


def _command(frame: bytes) -> _Command | None:
    """The command a frame is, None if it is a message or nothing that can be read."""
    try:
        command = _commands.decode(frame)
    except (msgspec.DecodeError, RecursionError):
        return None
    return command if command.cmd and not command.type else None
