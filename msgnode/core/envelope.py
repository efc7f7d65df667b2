"""The envelope of a frame: its fields, their validation, and the errors of an invalid frame.

Rules
- `from` is one address, `to` one or a list, `type` a word in any case, `id` any JSON scalar.
- A duplicate key is refused, because readers differ in which of the two values they take.
- The answer to an invalid frame uses those parts of it that can be read (InvalidFrame).
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from . import addresses
from .errors import NodeError
from .message_types import TYPES

MAX_ID_LENGTH = 256
MAX_TYPE_LENGTH = 64
MAX_RECIPIENTS = 1000

EMPTY = msgspec.Raw(b"")


class Envelope(msgspec.Struct, gc=False):
    """The five fields that the node reads; `id` and `body` stay raw."""

    id: msgspec.Raw = EMPTY
    type: str = ""
    sender: str = msgspec.field(name="from", default="")
    to: str | list[str] = ""
    body: msgspec.Raw = EMPTY


ENVELOPES = msgspec.json.Decoder(Envelope)
RAW_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_values = msgspec.json.Decoder()

SCALAR_START = frozenset(b'"-0123456789tf')
_KEY = re.compile(rb'\s*"((?:[^"\\]|\\.)*)"\s*:\s*')
_NEXT = re.compile(rb"\s*([,}])")


class InvalidFrame(NodeError):
    """An invalid frame, with the parts of it that its answer needs, as far as they are known."""

    code = 400

    def __init__(
        self,
        description: str,
        id_: bytes = b"",
        sender: str = "",
        to: str = "",
        is_response: bool = False,
    ) -> None:
        super().__init__(description)
        self.id = id_
        self.sender = sender
        self.to = to
        self.is_response = is_response


def fault_of(
    envelope: Envelope, id_: bytes, type_: str, recipients: tuple[str, ...], body: bytes
) -> str:
    """What is wrong with an envelope, as a sentence for its sender; "" if it is valid."""
    if not id_ or not type_ or not envelope.sender or not recipients or not recipients[0]:
        missing = _missing(envelope, id_, type_, recipients)
        if missing:
            return f"The message lacks {', '.join(missing)}."
    if id_ and (id_[0] not in SCALAR_START or len(id_) > MAX_ID_LENGTH):
        return f"The id must be a number, a text or a boolean of at most {MAX_ID_LENGTH} bytes."
    if type_ not in TYPES and (len(type_) > MAX_TYPE_LENGTH or not type_.isprintable()):
        return (
            f"The type {_shown(envelope.type)} is none: at most {MAX_TYPE_LENGTH} characters that "
            "can be printed."
        )
    if body and body[0] != 123 and body != b"null":
        return "The body must be a JSON object."
    if len(recipients) > MAX_RECIPIENTS:
        return f"The list `to` has more than {MAX_RECIPIENTS} recipients."
    sender = envelope.sender
    if sender and (why := addresses.fault(sender)):
        return f"The address in `from` {why}."
    parts, most = 0, addresses.MAX_PARTS_TOGETHER
    for to in recipients:
        if why := addresses.fault(to):
            return f"An address in `to` {why}."
        parts += addresses.parts_of(to)
    if parts > most:
        return f"The addresses in `to` have more than {most} parts together."
    return ""


def _missing(envelope: Envelope, id_: bytes, type_: str, recipients: tuple[str, ...]) -> list[str]:
    """The missing fields; status events may lack an id, session frames a `from` (rows 1 and 27)."""
    to = recipients[0] if recipients else ""
    names = []
    if not id_ and not (type_ == "update" and to.endswith("/status")):
        names.append("`id`")
    if not type_:
        names.append("`type`")
    if not envelope.sender and type_ not in ("open", "re-open", "close"):
        names.append("`from`")
    if not to:
        names.append("`to`")
    return names


def is_scalar(id_: bytes) -> bool:
    """Whether a JSON text, which may be empty, is a number, a text, a boolean or null."""
    return not id_ or id_[0] in SCALAR_START


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def repeats_a_key(frame: bytes) -> bool:
    """Whether the envelope has a duplicate key."""
    values = RAW_FIELDS.decode(frame)
    seen: set[str] = set()
    at = frame.index(b"{") + 1
    while match := _KEY.match(frame, at):
        key = _values.decode(b'"' + match[1] + b'"')
        value = bytes(values[key])
        if key in seen or not frame.startswith(value, match.end()):
            return True
        seen.add(key)
        following = _NEXT.match(frame, match.end() + len(value))
        if following is None:
            return True
        at = following.end()
        if following[1] == b"}":
            break
    return False


def invalid_frame(frame: bytes, error: Exception) -> InvalidFrame:
    """The error for a frame whose envelope cannot be decoded, with the parts that can be read."""
    if isinstance(error, RecursionError):
        return InvalidFrame("The message is nested too deeply.")
    if isinstance(error, UnicodeDecodeError):
        return InvalidFrame("The frame is not UTF-8 text.")
    try:
        fields = RAW_FIELDS.decode(frame)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return InvalidFrame("The frame is not a JSON object.")
    id_ = bytes(fields.get("id", EMPTY))
    return InvalidFrame(
        _in_words(str(error)),
        id_ if is_scalar(id_) and len(id_) <= MAX_ID_LENGTH else b"",
        _text(fields.get("from", EMPTY)),
        _text(fields.get("to", EMPTY)),
        _text(fields.get("type", EMPTY)).lower() == "response",
    )


def _text(raw: msgspec.Raw) -> str:
    try:
        value = _values.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return value if isinstance(value, str) and not addresses.fault(value) else ""


@lru_cache(maxsize=256)
def _in_words(error: str) -> str:
    """An error of msgspec ("Expected `str`, got `int` - at `$.from`") in words for the sender."""
    expected, _, at = error.partition(" - at ")
    names = {"`str`": "a text", "`str | array`": "a text or a list of texts", "`array`": "a list"}
    for word, plain in {**names, "`int`": "a number", "`object`": "an object"}.items():
        expected = expected.replace(word, plain)
    expected = expected[:1].lower() + expected[1:]
    return f"The field {at.replace('$.', '') or 'of the message'}: {expected}."
