"""Frames of a P2P channel: JSON texts, read tolerantly and written strictly. Pure.

    {uuid, seq, ack?, data: {uuid, sendingTime, dataSize: 0, textMessage: <message>}}
    {uuid, seq, ack?, part: [i, n], text}      piece i of n (from 0) of a message that is too long
    {ack}  {fenceAck}  {ping}  {pong}  {bye}

A frame without `seq` is one of the field's, which counts nothing.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from msgnode.runtime.python.messages import Message

PIECE = 16_384  # characters of one piece
MAX_MESSAGE = 1024 * 1024
MAX_PIECES = 2 * MAX_MESSAGE // PIECE
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


Frame = Data | Piece | Sign


def write(seq: int, message: Message, ack: int = 0) -> list[str]:
    """The frames of one message: one, or its pieces."""
    head: dict[str, Any] = {"uuid": f"{seq:012x}"[-12:], "seq": seq}
    if ack:
        head["ack"] = ack
    text = json.dumps(message, separators=(",", ":"), ensure_ascii=False)
    if len(text) <= PIECE:
        data = {"uuid": head["uuid"], "sendingTime": int(time.time() * 1000), "dataSize": 0}
        return [_text({**head, "data": {**data, "textMessage": message}})]
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    return [
        _text({**head, "part": [index, len(pieces)], "text": piece})
        for index, piece in enumerate(pieces)
    ]


def sign(kind: str, value: Any) -> str:
    """The frame of a sign."""
    return _text({kind: value})


def read(text: object) -> Frame:
    """What a frame says. Raises BadFrame."""
    if not isinstance(text, str):
        raise BadFrame("The frame is not a text.")
    try:
        frame = json.loads(text)
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
            value = frame[kind]
            return Sign(kind, _count(frame, kind) if kind in ("fenceAck", "ack") else value)
    if "bye" in frame:
        return Sign("bye", frame["bye"] if frame["bye"] in BYES else "closing")
    raise BadFrame("The frame is none that is known.")


def join(pieces: list[str]) -> Message:
    """The message of its pieces. Raises BadFrame."""
    text = "".join(pieces)
    try:
        # A pair of surrogates may have been cut in two.
        message = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16"))
    except (ValueError, RecursionError):
        raise BadFrame("The pieces make no JSON.") from None
    if not isinstance(message, dict):
        raise BadFrame("The pieces make no message.")
    return message


def _data(frame: dict[str, Any]) -> Data:
    data = frame["data"]
    message = data.get("textMessage") if isinstance(data, dict) else None
    if not isinstance(message, dict):
        raise BadFrame("The frame has no message.")
    return Data(_count(frame, "seq"), _count(frame, "ack"), message)


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


def _text(frame: dict[str, Any]) -> str:
    return json.dumps(frame, separators=(",", ":"), ensure_ascii=False)
