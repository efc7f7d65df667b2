"""The protocol between the node and a sandbox: one JSON object per line, in UTF-8. Pure.

A script, which is a peer's protostub or a connector, can write anything on its side of the pipe, so
every incoming line is untrusted until it was parsed here. A line that does not have exactly the
fields of one operation, or is too long, is InvalidLine: its sandbox is ended. No operation carries
any authority; a forged line can do nothing that the script could not do anyway. Which of them count
is for who has started the sandbox: a stub has no calls to answer, a connector posts no messages.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from msgnode.core import redaction

LINE_OVERHEAD = 64 * 1024
"""How many bytes a line may be longer than the largest frame of a socket."""
SHOWN = 300
"""Most characters kept of a text of the sandbox."""

_Number = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
_Code = Annotated[int, msgspec.Meta(ge=0, le=4999)]
_Word = Annotated[str, msgspec.Meta(max_length=32)]
_Url = Annotated[str, msgspec.Meta(max_length=2_000)]
_Text = Annotated[str, msgspec.Meta(max_length=4_000)]


class InvalidLine(Exception):
    """A line that is no operation of a sandbox; the text says why."""


class _Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="op"):
    pass


class Loaded(_Said, frozen=True, tag="loaded"):
    """The script was loaded and started; of a connector: its port, and the methods it has."""

    kind: _Word
    handles: _Word = ""
    methods: Annotated[list[_Word], msgspec.Meta(max_length=32)] = []


class LoadFailed(_Said, frozen=True, tag="load-failed"):
    """The stub could not be loaded."""

    error: _Text


class Posted(_Said, frozen=True, tag="message"):
    """The stub has posted a message on its bus: the text of a JSON object."""

    message: msgspec.Raw


class SocketWanted(_Said, frozen=True, tag="ws-open"):
    """The stub requests a WebSocket."""

    ws: _Number
    url: _Url
    protocols: Annotated[list[_Word], msgspec.Meta(max_length=8)] = []


class SocketSend(_Said, frozen=True, tag="ws-send"):
    """The stub sends text over a WebSocket."""

    ws: _Number
    data: str


class SocketClose(_Said, frozen=True, tag="ws-close"):
    """The stub closes a WebSocket."""

    ws: _Number
    code: _Code = 1000
    reason: Annotated[str, msgspec.Meta(max_length=500)] = ""


class RequestWanted(_Said, frozen=True, tag="http"):
    """The stub sends an HTTP request."""

    http: _Number
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    url: _Url
    headers: Annotated[
        dict[_Word, Annotated[str, msgspec.Meta(max_length=1_000, pattern=r"^[^\r\n]*$")]],
        msgspec.Meta(max_length=32),
    ] = {}
    body: str = ""


class RequestAborted(_Said, frozen=True, tag="http-abort"):
    """The stub gives a request up."""

    http: _Number


class Answered(_Said, frozen=True, tag="result"):
    """The connector answers a call."""

    n: _Number
    value: msgspec.Raw


class Refused(_Said, frozen=True, tag="refused"):
    """The connector refuses a call; code 0: it has failed."""

    n: _Number
    code: Annotated[int, msgspec.Meta(ge=0, le=599)]
    desc: _Text


class KeptWanted(_Said, frozen=True, tag="store"):
    """The connector reads or changes what it keeps at the node.

    `version`: that the entry must still have, 0 for none; with None it may have any.
    """

    n: _Number
    action: Literal["get", "put", "delete", "list"]
    key: Annotated[str, msgspec.Meta(max_length=200)] = ""
    value: Annotated[str, msgspec.Meta(max_length=65_536)] = ""
    version: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None


class News(_Said, frozen=True, tag="news"):
    """The connector of the domain registry names entries whose status has changed by itself."""

    entries: Annotated[list[tuple[_Url, _Word]], msgspec.Meta(max_length=100)]


class Happened(_Said, frozen=True, tag="network"):
    """The connector of an access network says what has happened there; it is answered."""

    n: _Number
    event: Literal["state", "message", "call"]
    value: msgspec.Raw


class Logged(_Said, frozen=True, tag="log"):
    """Console output of the stub, or an uncaught error."""

    text: _Text


class Pong(_Said, frozen=True, tag="pong"):
    """The answer to a heartbeat."""

    n: _Number


Said = (
    Loaded | LoadFailed | Posted | SocketWanted | SocketSend | SocketClose
    | RequestWanted | RequestAborted | Answered | Refused | KeptWanted | News | Happened
    | Logged | Pong
)  # fmt: skip

_decoder: msgspec.json.Decoder[Said] = msgspec.json.Decoder(Said)
_encode = msgspec.json.Encoder().encode


def read(line: bytes) -> Said:
    """Parse one line of a sandbox, without its line end.

    Raises:
        InvalidLine: it is not a valid operation.
    """
    try:
        if not line.isascii():
            line.decode()  # all that is passed on must be UTF-8
        said = _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidLine(f"A line of the sandbox is no operation: {error}"[:SHOWN]) from None
    if isinstance(said, Posted) and bytes(said.message)[:1] != b"{":
        raise InvalidLine("What the stub has posted is no message.")
    return said


class LineReader:
    """Splits what comes out of a pipe into lines, and never keeps more than one line may have.

    Args:
        max_line: most bytes of a line.
    """

    def __init__(self, max_line: int) -> None:
        self._max_line = max_line
        self._rest = bytearray()

    def feed(self, part: bytes) -> list[bytes]:
        """The lines that this part completes, without empty ones.

        Raises:
            InvalidLine: one is too long.
        """
        lines = part.split(b"\n")
        self._rest += lines[0]
        if len(lines) > 1:
            lines[0] = bytes(self._rest)
            self._rest = bytearray(lines.pop())
        else:
            lines = []
        if len(self._rest) > self._max_line or any(len(each) > self._max_line for each in lines):
            self._rest.clear()
            raise InvalidLine(f"A line of the sandbox is longer than {self._max_line} bytes.")
        return [each for each in lines if each]


def shown(text: str) -> str:
    """A text of a stub or of its system, redacted for display and storage.

    Args:
        text: may contain tokens, such as that of this node's session there.

    >>> shown("it\\0 failed")
    'it  failed'
    """
    without = redaction.cut(text[: 4 * SHOWN])[:SHOWN]
    return "".join(char if char.isprintable() else " " for char in without)


# --- what the node says ---------------------------------------------------------------------------


def _line(operation: dict[str, Any]) -> bytes:
    """One line, whatever line breaks a message has between its parts: the next line is an order."""
    return _encode(operation).replace(b"\n", b" ") + b"\n"


def load(source: str, stub_url: str, configuration: dict[str, Any]) -> bytes:
    """Load a stub and start it."""
    return _line({"op": "load", "source": source, "stubURL": stub_url, "config": configuration})


def load_connector(source: str, configuration: dict[str, Any], revealed: dict[str, str]) -> bytes:
    """Load a connector; `revealed` are the secrets whose values it gets."""
    told = {"op": "load-connector", "source": source, "config": configuration}
    return _line({**told, "secrets": revealed})


def call(number: int, method: str, argument: Any, context: dict[str, Any]) -> bytes:
    """Call a method of the connector."""
    told = {"op": "call", "n": number, "method": method, "argument": argument, "context": context}
    return _line(told)


def cancel(number: int) -> bytes:
    """Nobody waits for the answer to a call any more."""
    return _line({"op": "cancel", "n": number})


def kept(number: int, value: Any = None, error: str = "") -> bytes:
    """The answer to a KeptWanted, or to a Happened."""
    return _line({"op": "store", "n": number, "value": value, "error": error})


def post(message: bytes) -> bytes:
    """Pass a message (JSON text) to the stub."""
    return _line({"op": "post", "message": msgspec.Raw(message)})


def connect() -> bytes:
    """Have the stub connect."""
    return _line({"op": "connect"})


def disconnect() -> bytes:
    """Have the stub disconnect."""
    return _line({"op": "disconnect"})


def ping(number: int) -> bytes:
    """A heartbeat."""
    return _line({"op": "ping", "n": number})


def socket_open(number: int, protocol: str) -> bytes:
    """A WebSocket is open."""
    return _line({"op": "ws", "ws": number, "event": "open", "protocol": protocol})


def socket_message(number: int, data: str) -> bytes:
    """Text came over a WebSocket."""
    return _line({"op": "ws", "ws": number, "event": "message", "data": data})


def socket_buffered(number: int, size: int) -> bytes:
    """The number of unsent bytes of a WebSocket."""
    return _line({"op": "ws", "ws": number, "event": "buffered", "buffered": size})


def socket_closed(number: int, code: int, reason: str) -> bytes:
    """A WebSocket is closed, or could not be opened."""
    return _line({"op": "ws", "ws": number, "event": "close", "code": code, "reason": reason})


def http_answer(number: int, status: int, content_type: str, body: str) -> bytes:
    """An HTTP request was answered."""
    told = {"op": "http", "http": number, "status": status, "type": content_type, "body": body}
    return _line(told)


def http_failed(number: int, error: str) -> bytes:
    """An HTTP request was refused, or not answered."""
    return _line({"op": "http", "http": number, "status": 0, "error": error})
