"""Messages on the wire: tolerant reading, strict writing.

The rules of the wire are in docs/reference/messages.md, sections 1 and 9.

parse()  one frame -> Message. The envelope is decoded once; the body stays raw JSON text.
Message  what the node needs of it, and `forwarded()`: the frame for a recipient, as it came except
         for the marks that only the node may set.
reply()  a response to a message.

Rules
- A frame is a JSON object. `from` is one address, `to` one or a list, `type` a word in any case,
  `id` any JSON scalar and given back exactly as it was written.
- A `type` that is none of TYPES is for the recipient to understand: it is passed on unread.
- The same envelope key twice is refused: readers differ in which of the two they believe.
- `body.auth` and `body.assertedIdentity` are statements of the node. What a sender claims there is
  dropped by decoding, never by searching the text, because keys can be escaped.
- `body.accessToken` does not cross the border to another domain (border.py).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from . import addresses
from .errors import BadMessage, NodeError
from .message_types import TYPES
from .token_scope import may_cross

MAX_ID_LENGTH = 256
MAX_TYPE_LENGTH = 64
MAX_RECIPIENTS = 1000

_EMPTY = msgspec.Raw(b"")


class _Envelope(msgspec.Struct):
    id: msgspec.Raw = _EMPTY
    type: str = ""
    sender: str = msgspec.field(name="from", default="")
    to: str | list[str] = ""
    body: msgspec.Raw = _EMPTY


class IdentityFields(msgspec.Struct):
    """What a body says of its sender, undecoded; empty where it says nothing.

    `auth` and `assertedIdentity` are claims of no worth.
    """

    auth: msgspec.Raw = _EMPTY
    assertedIdentity: msgspec.Raw = _EMPTY  # noqa: N815 (wire spelling)
    identity: msgspec.Raw = _EMPTY
    idToken: msgspec.Raw = _EMPTY  # noqa: N815 (wire spelling)
    accessToken: msgspec.Raw = _EMPTY  # noqa: N815 (wire spelling)
    via: msgspec.Raw = _EMPTY


_envelopes = msgspec.json.Decoder(_Envelope)
_said = msgspec.json.Decoder(IdentityFields)
_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_values = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode

_SCALAR_START = frozenset(b'"-0123456789tf')
_COMPACT = len('{"id":,"type":"","from":"","to":"","body":}')
_KEY = re.compile(rb'\s*"((?:[^"\\]|\\.)*)"\s*:\s*')
_NEXT = re.compile(rb"\s*([,}])")


class InvalidFrame(NodeError):
    """A frame that is no message: the answer's parts, as far as the frame showed them."""

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


class Message:
    """A message as read. `recipients` are distinct and in the order given.

    id      JSON text as sent, b"" if absent    type  lower case
    sender  the field `from`                    body  JSON object text, b"{}" if absent
    frame   the frame as it came (UTF-8)
    """

    __slots__ = (
        "_fields",
        "_plain",
        "_said",
        "_spliced",
        "_whole",
        "body",
        "frame",
        "id",
        "is_response",
        "recipients",
        "sender",
        "type",
    )

    def __init__(
        self,
        id_: bytes,
        type_: str,
        sender: str,
        recipients: tuple[str, ...],
        body: bytes,
        frame: bytes,
        plain: bool,
    ) -> None:
        self.id = id_
        self.type = type_
        self.is_response = type_ == "response"
        self.sender = sender
        self.recipients = recipients
        self.body = body
        self.frame = frame
        self._plain = plain  # the five known fields only, compact, `body` last, one recipient
        self._fields: dict[str, Any] | None = None
        self._said: IdentityFields | None = None
        self._whole: Message | None = None  # with all recipients, if this is the copy for one
        self._spliced: dict[tuple[bool, ...], tuple[bytes, bytes]] | None = None

    @property
    def said(self) -> IdentityFields:
        """What the body says of its sender, read once.

        Raises:
            BadMessage: the body is nested too deep.
        """
        said = self._said
        if said is None:
            said = self._said = _read(self.body)
        return said

    @property
    def id_key(self) -> str:
        """The id for look-ups: 1 and "1" are the same id.

        So are all spellings that JSON takes for one value, because a response is written anew by
        who gives it (docs/reference/messages.md, section 6.2).
        """
        return plain_id(self.id)

    def fields(self) -> dict[str, Any]:
        """The body decoded, once. Raises BadMessage if it is nested deeper than can be read."""
        if self._whole is not None:
            return self._whole.fields()
        if self._fields is None:
            try:
                self._fields = _values.decode(self.body)
            except (msgspec.DecodeError, RecursionError):
                raise BadMessage("The body is not a JSON object that can be read.") from None
        return self._fields

    def to_one(self, to: str) -> Message:
        """The same message for one of its recipients."""
        single = Message(self.id, self.type, self.sender, (to,), self.body, self.frame, False)
        single._said, single._whole = self._said, self
        return single

    def with_body(self, body: bytes) -> Message:
        """The same message with another body (JSON object text), as a policy rewrote it."""
        envelope = _raw_fields.decode(self.frame)
        envelope["body"] = msgspec.Raw(body)
        frame = _encode(envelope)
        return Message(self.id, self.type, self.sender, self.recipients, body, frame, False)

    def forwarded(
        self, to: str, auth: bool, asserted: bool = False, body: bytes | None = None
    ) -> bytes:
        """The frame for one recipient, with the node's marks.

        One copy names one recipient (docs/reference/messages.md, section 9, row 3).

        Args:
            to: the recipient.
            auth: whether a policy permitted the message.
            asserted: whether the sender's identity is verified.
            body: what stands in for the body, where a policy has rewritten it.

        Returns:
            The frame as it came but for the marks, and without what may not leave for the
            recipient's domain.
        """
        try:
            if body is None:
                body, said = self.body, self.said
            else:
                said = _read(body)
            crosses = said.accessToken is _EMPTY or may_cross(said.accessToken, self.sender, to)
            whole = self._whole
            if whole is not None and body is whole.body:
                return whole._copy_for(to, auth, asserted, crosses, said)
            marked = _mark(body if crosses else _without(body, "accessToken"), said, auth, asserted)
            if self._plain:
                return b"%b%b}" % (self.frame[: -1 - len(self.body)], marked)
            envelope = _raw_fields.decode(self.frame)
        except RecursionError:  # read with a shorter stack than this one
            raise BadMessage("The message is nested too deeply.") from None
        envelope["to"] = msgspec.Raw(_encode(to))
        envelope["body"] = msgspec.Raw(marked)
        return _encode(envelope)

    def _copy_for(
        self, to: str, auth: bool, asserted: bool, crosses: bool, said: IdentityFields
    ) -> bytes:
        """The frame for one of several recipients.

        It is encoded once for all with the same marks; only `to` differs from one to the next.
        """
        if self._spliced is None:
            self._spliced = {}
        parts = self._spliced.get((auth, asserted, crosses))
        if parts is None:
            body = self.body if crosses else _without(self.body, "accessToken")
            envelope = _raw_fields.decode(self.frame)
            envelope["body"] = msgspec.Raw(_mark(body, said, auth, asserted))
            del envelope["to"]
            parts = b'{"to":', b"," + _encode(envelope)[1:]
            self._spliced[auth, asserted, crosses] = parts
        return b"%b%b%b" % (parts[0], _encode(to), parts[1])


def plain_id(id_: bytes) -> str:
    """The id for comparing: as text, however it was written (with escapes, or 1.0 for 1)."""
    if id_.isdigit():
        return id_.decode()
    if id_[:1] == b'"' and b"\\" not in id_:
        return id_[1:-1].decode()
    value = _values.decode(id_) if id_ else ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else _encode(value).decode()


def parse(frame: bytes) -> Message:
    """Read one frame.

    Args:
        frame: UTF-8 JSON, as it came.

    Raises:
        InvalidFrame: it is no message; the text names what is wrong.
    """
    is_ascii = frame.isascii()
    try:
        if not is_ascii:
            frame.decode()  # what is passed on must be text to the last byte
        envelope = _envelopes.decode(frame)
        body = bytes(envelope.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _refusal(frame, error) from None
    to = envelope.to
    type_ = envelope.type.lower()
    id_ = bytes(envelope.id)
    recipients = (to,) if to.__class__ is str else tuple(dict.fromkeys(to))
    problem = _problem(envelope, id_, type_, recipients, body)
    plain = False
    if not problem:
        if (
            to.__class__ is str
            and is_ascii
            and id_
            and envelope.sender
            and body  # all five are there, so at this length nothing else is
            and len(frame)
            == _COMPACT + len(id_) + len(type_) + len(envelope.sender) + len(to) + len(body)
        ):
            plain = frame.endswith(b"}}")
        elif _repeats_a_key(frame):
            problem = "A key of the message stands twice."
    if problem:
        first = to if to.__class__ is str else next(iter(recipients), "")
        id_ = id_ if _is_scalar(id_) else b""
        raise InvalidFrame(problem, id_, envelope.sender, first, type_ == "response")
    if not body or body == b"null":
        body, plain = b"{}", False
    return Message(id_, type_, envelope.sender, recipients, body, frame, plain)


def reply(message: Message, body: dict[str, Any], sender: str = "") -> bytes:
    """A response: id as it came, from and to swapped (docs/reference/messages.md, section 1.5).

    Args:
        message: the request.
        body: what is answered.
        sender: stands in for the recipient where the request named several or none.
    """
    return response(message.id, sender or message.recipients[0], message.sender, body)


def response(id_: bytes, sender: str, to: str, body: dict[str, Any]) -> bytes:
    """A response from its parts; the id is left out where the request had none."""
    head = b'{"id":%b,"type":"response"' % id_ if id_ else b'{"type":"response"'
    parties = b',"from":%b,"to":%b,"body":%b}' % (_encode(sender), _encode(to), _encode(body))
    return head + parties


def event(sender: str, to: str, value: Any, id_: int, **more: Any) -> bytes:
    """An `update` of the node's own, such as the gap signal on `<runtime URL>/status`."""
    body = {"value": value, **more}
    return _encode({"id": id_, "type": "update", "from": sender, "to": to, "body": body})


def error_body(error: NodeError) -> dict[str, Any]:
    """The body of an error: its code and its text under both keys readers look for (row 8)."""
    text = error.description
    return {"code": error.code, "desc": text, "description": text}


def _read(body: bytes) -> IdentityFields:
    try:
        return _said.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise BadMessage("The message is nested too deeply.") from None


def _mark(body: bytes, claimed: IdentityFields, auth: bool, asserted: bool) -> bytes:
    if claimed.auth is not _EMPTY or claimed.assertedIdentity is not _EMPTY:
        body = _without(body, "auth", "assertedIdentity")
    marks = _MARKS[auth, asserted]
    rest = body[1:]
    return marks + b"}" if rest.lstrip() == b"}" else b"%b,%b" % (marks, rest)


def _without(body: bytes, *names: str) -> bytes:
    fields = _raw_fields.decode(body)
    for name in names:
        fields.pop(name, None)
    return _encode(fields)


_MARKS = {
    (auth, asserted): (b'{"auth":' + (b"true" if auth else b"false"))
    + (b',"assertedIdentity":true' if asserted else b"")
    for auth in (True, False)
    for asserted in (True, False)
}


def _problem(
    envelope: _Envelope, id_: bytes, type_: str, recipients: tuple[str, ...], body: bytes
) -> str:
    if not id_ or not type_ or not envelope.sender or not recipients or not recipients[0]:
        missing = _missing(envelope, id_, type_, recipients)
        if missing:
            return f"The message lacks {', '.join(missing)}."
    if id_ and (not _is_scalar(id_) or len(id_) > MAX_ID_LENGTH):
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
    if envelope.sender and (why := addresses.fault(envelope.sender)):
        return f"The address in `from` {why}."
    for to in recipients:
        if why := addresses.fault(to):
            return f"An address in `to` {why}."
    return ""


def _missing(envelope: _Envelope, id_: bytes, type_: str, recipients: tuple[str, ...]) -> list[str]:
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


def _is_scalar(id_: bytes) -> bool:
    return not id_ or id_[0] in _SCALAR_START


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _repeats_a_key(frame: bytes) -> bool:
    """Whether an envelope key stands twice. Walks the keys: each value is known by its text."""
    values = _raw_fields.decode(frame)
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


def _refusal(frame: bytes, error: Exception) -> InvalidFrame:
    """The answer to a frame whose envelope cannot be read, with what can be saved of it."""
    if isinstance(error, RecursionError):
        return InvalidFrame("The message is nested too deeply.")
    if isinstance(error, UnicodeDecodeError):
        return InvalidFrame("The frame is not UTF-8 text.")
    try:
        fields = _raw_fields.decode(frame)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return InvalidFrame("The frame is not a JSON object.")
    id_ = bytes(fields.get("id", _EMPTY))
    return InvalidFrame(
        _in_words(str(error)),
        id_ if _is_scalar(id_) and len(id_) <= MAX_ID_LENGTH else b"",
        _text(fields.get("from", _EMPTY)),
        _text(fields.get("to", _EMPTY)),
        _text(fields.get("type", _EMPTY)).lower() == "response",
    )


def _text(raw: msgspec.Raw) -> str:
    try:
        value = _values.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return value if isinstance(value, str) and not addresses.fault(value) else ""


@lru_cache(maxsize=256)
def _in_words(error: str) -> str:
    """msgspec's words ("Expected `str`, got `int` - at `$.from`") as a sentence for the sender."""
    expected, _, at = error.partition(" - at ")
    names = {"`str`": "a text", "`str | array`": "a text or a list of texts", "`array`": "a list"}
    for word, plain in {**names, "`int`": "a number", "`object`": "an object"}.items():
        expected = expected.replace(word, plain)
    expected = expected[:1].lower() + expected[1:]
    return f"The field {at.replace('$.', '') or 'of the message'}: {expected}."
