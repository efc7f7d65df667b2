"""The handshake of the Matrix-type stubs: `/stub/connect`, with `cmd` frames.

docs/reference/messages.md, cases 12-14.

A stub that names its runtime in the URL counts as live as soon as the socket is open, and reads no
close code. So a refusal is sent twice: everything the stub sends while the socket is open is
answered with the error code, and the socket is closed with a close code for stubs that read it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from msgnode.core.errors import Forbidden, NodeError, TooMany, Unavailable
from msgnode.core.messages import Message
from msgnode.core.pending import Pending

from .connection import Connection
from .handshake import SessionHandshake
from .rules import CloseCode


class _CommandData(msgspec.Struct):
    runtime_url: str = msgspec.field(name="runtimeURL", default="")


class _Command(msgspec.Struct):
    cmd: str = ""
    type: str = ""
    data: _CommandData = msgspec.field(default_factory=_CommandData)
    body: _CommandData = msgspec.field(default_factory=_CommandData)


REFUSED_SECONDS = 2.0
"""How long a refused stub is answered before its socket is closed."""

_commands = msgspec.json.Decoder(_Command)


class StubConnection(Connection):
    """A socket whose URL, or first frame (`connect`), names its runtime."""

    handshake = "stub-connect"
    _farewell: asyncio.TimerHandle | None = None

    def __init__(self, session_handshake: SessionHandshake, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._session_handshake = session_handshake

    def _carry_one(self, frame: bytes, message: Message | None = None) -> None:
        try:
            command = _command(frame) if self.session is None or b'"cmd"' in frame else None
            if self.refusal is not None or (command is None and self.session is not None):
                super()._carry_one(frame, message)  # a refused one is answered with its refusal
            else:
                self._obey(command)
        except Exception as error:
            self._fail(error)

    def _obey(self, command: _Command | None) -> None:
        if command is not None and command.cmd == "disconnect" and self.session is not None:
            self._disconnect(command)
        elif command is not None and command.cmd == "connect" and self.session is None:
            self._connect(command)
        elif self.session is None:
            self._refuse(Forbidden("Invalid handshake!"))

    def begin(self, runtime_url: str) -> None:
        """Open the session of the runtime that the socket's URL names."""
        try:
            self._session_handshake.enter(runtime_url, self)
        except Pending as fact:
            self.wait_until(fact, lambda: self.begin(runtime_url))
        except NodeError as error:
            self.refusal = error
            self._deadline.cancel()
            self._farewell = asyncio.get_running_loop().call_later(
                REFUSED_SECONDS, self.end, _close_code(error), error.description[:100]
            )

    def banned(self) -> None:
        """Close the socket of a banned client, unless it must still be told of the refusal."""
        if self.refusal is None:
            super().banned()

    def _stop(self) -> None:
        super()._stop()
        if self._farewell is not None:
            self._farewell.cancel()

    def _connect(self, command: _Command) -> None:
        runtime_url = command.data.runtime_url or command.body.runtime_url
        try:
            self._session_handshake.enter(runtime_url, self, self._accept)
        except Pending as fact:
            self.wait_until(fact, lambda: self._connect(command))
        except NodeError as error:
            self._refuse(error)

    def _disconnect(self, command: _Command) -> None:
        named = (command.data.runtime_url, command.body.runtime_url)
        if self.session is not None and self.session.runtime_url in named:
            self._session_handshake.leave(self)

    def _accept(self, body: dict[str, Any]) -> None:
        text = "Connection accepted!" if body["code"] == 200 else body["description"]
        self._answer(body["code"], text)

    def _refuse(self, error: NodeError) -> None:
        self._answer(error.code, error.description)
        self.end(_close_code(error), "refused")

    def _answer(self, code: int, text: str) -> None:
        frame = msgspec.json.encode({"cmd": "connect", "response": code, "data": {"msg": text}})
        self.link.write(frame)


def _close_code(error: NodeError) -> int:
    """The close code of a refusal; after a limit the stub may try again later."""
    return CloseCode.NO_ROOM if isinstance(error, TooMany | Unavailable) else CloseCode.REFUSED


def _command(frame: bytes) -> _Command | None:
    """The command in a frame, None if it is a message or cannot be decoded."""
    try:
        command = _commands.decode(frame)
    except (msgspec.DecodeError, RecursionError):
        return None
    return command if command.cmd and not command.type else None
