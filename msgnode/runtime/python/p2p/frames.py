"""Frames of a P2P channel: JSON texts, read tolerantly and written strictly. Pure.

    {uuid, seq, ack?, data: {uuid, sendingTime, dataSize: 0, textMessage: <message>}}
    {uuid, seq, ack?, part: [i, n], text}      piece i of n (from 0) of a message that is too long
    {uuid, data: <text>}, <uuid><bytes>        piece of a content
    {ack}  {fenceAck}  {ping}  {pong}  {bye}

A frame without `seq` is one of the field's, which counts nothing. See docs/reference/p2p.md,
section 4.
"""

from __future__ import annotations

import json
import re
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from msgnode.runtime.python.messages import Message, answer_to, body_of

PIECE = 16_384  # characters of one piece, and bytes of one of a content
MAX_MESSAGE = 1024 * 1024
MAX_PIECES = 2 * MAX_MESSAGE // PIECE
UUID = 12  # characters that we write, and that stand before bytes
MAX_UUID = 64
MAX_TRANSFERS = 8  # at a time, on one channel
BYES = ("idle", "closing", "forbidden")


class BadFrame(ValueError):
    """A frame that cannot be read; the text names what is wrong."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """What carries a message; `seq` is 0 for one of the field's, `ack` for none."""

    seq: int
    ack: int


@dataclass(frozen=True, slots=True)
class Data(Numbered):
    """A message."""

    message: Message


@dataclass(frozen=True, slots=True)
class Begun(Numbered):
    """A message without its content, of which `size` bytes or characters follow."""

    message: Message
    uuid: str
    size: int


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of a content that is a text."""

    uuid: str
    text: str


@dataclass(frozen=True, slots=True)
class Bytes:
    """A piece of a content that is bytes."""

    uuid: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Piece(Numbered):
    """Piece `index` of `count` of the message `seq`."""

    index: int
    count: int
    text: str


@dataclass(frozen=True, slots=True)
class Sign:
    """A frame without a message. `kind` is ack, fenceAck, ping, pong or bye."""

    kind: str
    value: Any


Frame = Data | Begun | Text | Bytes | Piece | Sign


def write_plain(uuid: str, message: Message) -> list[str | bytes]:
    """The frames of one message for the field, which counts nothing."""
    return _written({"uuid": uuid}, message)


def _written(head: dict[str, Any], message: Message) -> list[str | bytes]:
    """A message in one frame, and what of it is bytes behind that."""
    uuid, content = head["uuid"], content_of(message)
    data = {"uuid": uuid, "sendingTime": int(time.time() * 1000), "dataSize": len(content or b"")}
    if content is None:
        return [_encoded({**head, "data": {**data, "textMessage": message}})]
    data |= {"textMessage": without_content(message)} | ({} if content else {"binary": True})
    mark = uuid.encode("utf-16-le")
    behind = [mark + content[at : at + PIECE] for at in range(0, len(content), PIECE)]
    return [_encoded({**head, "data": data}), *behind]


def write(seq: int, message: Message, ack: int = 0) -> list[str | bytes]:
    """The frames of one message: one, or its pieces; bytes come behind."""
    head: dict[str, Any] = {"uuid": f"{seq:012x}"[-UUID:], "seq": seq}
    if ack:
        head["ack"] = ack
    if content_of(message) is not None:
        return _written(head, message)
    text = _encoded(message)
    if len(text) <= PIECE:
        return _written(head, message)
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    return [
        _encoded({**head, "part": [index, len(pieces)], "text": piece})
        for index, piece in enumerate(pieces)
    ]


def sign(kind: str, value: Any) -> str:
    """The frame of a sign."""
    return _encoded({kind: value})


def read(text: object) -> Frame:
    """What a frame says. Raises BadFrame."""
    if isinstance(text, bytes):
        return _bytes(text)
    if not isinstance(text, str):
        raise BadFrame("The frame is not a text.")
    try:
        frame = _JSON.decode(text)
    except (ValueError, RecursionError):
        raise BadFrame("The frame is not JSON.") from None
    if not isinstance(frame, dict):
        raise BadFrame("The frame is not an object.")
    if "part" in frame:
        return _piece(frame)
    if "data" in frame:
        return _data(frame)
    for kind in ("fenceAck", "ack", "ping", "pong"):
        if kind in frame:
            is_count = kind in ("fenceAck", "ack")
            return Sign(kind, _count(frame, kind) if is_count else _mark(frame[kind]))
    if "bye" in frame:
        return Sign("bye", frame["bye"] if frame["bye"] in BYES else "closing")
    raise BadFrame("The frame is none that is known.")


def join(pieces: list[str]) -> Message:
    """The message of its pieces. Raises BadFrame."""
    text = "".join(pieces)
    try:
        # A pair of surrogates may have been cut in two.
        message = _JSON.decode(text.encode("utf-16", "surrogatepass").decode("utf-16"))
    except (ValueError, RecursionError):
        raise BadFrame("The pieces make no JSON.") from None
    if not isinstance(message, dict):
        raise BadFrame("The pieces make no message.")
    return message


def content_of(message: Message) -> bytes | None:
    """The content of a message, if that is bytes, which JSON cannot carry."""
    value = body_of(message).get("value")
    content = value.get("content") if isinstance(value, dict) else None
    return content if isinstance(content, bytes) else None


def without_content(message: Message) -> Message:
    """The message, to be sent before its content."""
    body = body_of(message)
    value = {key: each for key, each in body["value"].items() if key != "content"}
    return {**message, "body": {**body, "value": value}}


def with_content(message: Message, content: str | bytes) -> Message:
    """The message with a content."""
    body = body_of(message)
    value = body.get("value")
    value = value if isinstance(value, dict) else {}
    return {**message, "body": {**body, "value": {**value, "content": content}}}


def _data(frame: dict[str, Any]) -> Data | Begun | Text:
    data, uuid = frame["data"], frame.get("uuid")
    if isinstance(data, str):
        return Text(_checked(uuid), data)
    message = data.get("textMessage") if isinstance(data, dict) else None
    if not isinstance(message, dict):
        raise BadFrame("The frame has no message.")
    seq, ack, size = _count(frame, "seq"), _count(frame, "ack"), _count(data, "dataSize")
    if not size:
        is_empty = data.get("binary") is True
        return Data(seq, ack, with_content(message, b"") if is_empty else message)
    if size > MAX_MESSAGE:
        raise BadFrame("The content is too large.")
    return Begun(seq, ack, message, _checked(uuid), size)


def _checked(uuid: object) -> str:
    if not isinstance(uuid, str) or not 0 < len(uuid) <= MAX_UUID:
        raise BadFrame("The frame lacks its uuid.")
    return uuid


def _bytes(data: bytes) -> Bytes:
    try:
        return Bytes(data[: 2 * UUID].decode("utf-16-le"), data[2 * UUID :])
    except UnicodeDecodeError:
        raise BadFrame("The bytes do not begin with a uuid.") from None


def _piece(frame: dict[str, Any]) -> Piece:
    part, text = frame["part"], frame.get("text")
    seq = _count(frame, "seq")
    if not isinstance(text, str) or len(text) > PIECE or not seq:
        raise BadFrame("The piece lacks its text or number, or is too long.")
    if not isinstance(part, list) or len(part) != 2 or not all(map(_is_count, part)):
        raise BadFrame("The field `part` is not two counts.")
    index, count = part
    if not index < count <= MAX_PIECES:
        raise BadFrame("The field `part` names no piece.")
    return Piece(seq, _count(frame, "ack"), index, count, text)


def _count(frame: dict[str, Any], name: str) -> int:
    value = frame.get(name, 0)
    if not _is_count(value):
        raise BadFrame(f"The field `{name}` is not a count.")
    return int(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _mark(value: object) -> object:
    """What a ping says is given back: a number, or a text that is not long."""
    is_short = isinstance(value, str) and len(value) <= MAX_UUID
    if not is_short and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise BadFrame("The ping says neither a number nor a short text.")
    return value


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON.")


def _encoded(frame: dict[str, Any]) -> str:
    text = json.dumps(frame, separators=(",", ":"), ensure_ascii=False)
    if text.isascii() or not _HALF.search(text):
        return text
    return json.dumps(frame, separators=(",", ":"))  # UTF-8 cannot write it, an escape of JSON can


_JSON = json.JSONDecoder(parse_constant=_no_number)
_HALF = re.compile("[\ud800-\udfff]")
"""Half a character, as a text has one that was cut anywhere."""


class Transfer:
    """A content that arrives.

    Args:
        begun: the frame before it.
    """

    def __init__(self, begun: Begun) -> None:
        self._begun = begun
        self._pieces: list[str | bytes] = []
        self._left = begun.size
        self._percent = 0

    def add(self, frame: Text | Bytes) -> bool:
        """Take a piece; whether it was the last one. Raises BadFrame."""
        piece = frame.text if isinstance(frame, Text) else frame.data
        if self._pieces and type(piece) is not type(self._pieces[0]):
            raise BadFrame("A content is text or bytes, not both.")
        size = len(piece) if isinstance(piece, bytes) else len(piece.encode("utf-16-le")) // 2
        if not size or size > self._left:
            raise BadFrame("A piece of a content is empty, or more than was to come.")
        self._pieces.append(piece)
        self._left -= size
        return not self._left

    def progress(self) -> Message | None:
        """A provisional answer to who waits for this one, when the percentage has grown."""
        message = self._begun.message
        percent = 100 * (self._begun.size - self._left) // self._begun.size
        sender, to = message.get("from"), message.get("to")
        is_answer = message.get("type") == "response" and isinstance(sender, str)
        if not is_answer or percent <= self._percent:
            return None
        self._percent = percent
        text = "Message reception is progressing"
        found = answer_to({**message, "from": to, "to": sender}, 183, text)
        found["body"]["value"] = percent
        return found

    def message(self) -> Message:
        """The message as it was sent."""
        first = self._pieces[0]
        if isinstance(first, bytes):
            whole: str | bytes = b"".join(each for each in self._pieces if isinstance(each, bytes))
        else:
            whole = "".join(each for each in self._pieces if isinstance(each, str))
        return with_content(self._begun.message, whole)


class Transfers:
    """The contents that arrive on one channel without numbers, several at a time."""

    def __init__(self) -> None:
        self._all: OrderedDict[str, Transfer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, begun: Begun) -> None:
        """A message whose content follows. Raises BadFrame."""
        if begun.uuid in self._all or len(self._all) >= MAX_TRANSFERS:
            raise BadFrame("The content is under way, or too many are.")
        self._all[begun.uuid] = Transfer(begun)

    def add(self, frame: Text | Bytes) -> Message | None:
        """A piece. Returns what it makes: the message, progress, or nothing. Raises BadFrame."""
        transfer = self._all.get(frame.uuid)
        if transfer is None:
            raise BadFrame("No content of this uuid is under way.")
        try:
            is_last = transfer.add(frame)
        except BadFrame:
            del self._all[frame.uuid]
            raise
        if not is_last:
            return transfer.progress()
        del self._all[frame.uuid]
        return transfer.message()
