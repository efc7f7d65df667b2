"""Messages on the wire: tolerant reading, strict writing.

The rules of the wire are in docs/reference/messages.md, sections 1 and 9.

parse()  one frame -> Message. The envelope is decoded once; the body stays raw JSON text.
Message  what the node needs of it, and `forwarded()`: the frame for a recipient, as it came except
         for the marks that only the node may set.
reply()  a response to a message.

Rules
- A frame is a JSON object with an envelope (envelope.py); its `id` is returned exactly as written.
- A `type` that is not in TYPES is passed on to the recipient as it is.
- `to` is read in canonical form, in which recipients get it too; any other `from` is refused.
- `body.auth` and `body.assertedIdentity` are marks of the node. A sender's values are removed by
  decoding, never by searching the text, because keys can be escaped. A recipient reads
  `"assertedIdentity":true`; the node of another domain reads whose identity it is (`vouched`).
- `body.accessToken` does not leave its domain (token_scope.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from .addresses import FAULTS, canonical
from .envelope import (
    EMPTY,
    ENVELOPES,
    MAX_ID_LENGTH,
    RAW_FIELDS,
    SCALAR_START,
    InvalidFrame,
    fault_of,
    invalid_frame,
    is_scalar,
    repeats_a_key,
)
from .errors import BadMessage, NodeError
from .identity import Identity
from .message_types import TYPES
from .nesting import LEAST_DEEP, MAX_DEPTH, is_too_deep
from .token_scope import may_cross


class IdentityFields(msgspec.Struct, gc=False):
    """The fields of a body about its sender, raw; empty where absent.

    `auth` and `assertedIdentity` are the sender's claims and must not be trusted.
    """

    auth: msgspec.Raw = EMPTY
    assertedIdentity: msgspec.Raw = EMPTY  # noqa: N815 (wire spelling)
    identity: msgspec.Raw = EMPTY
    idToken: msgspec.Raw = EMPTY  # noqa: N815 (wire spelling)
    accessToken: msgspec.Raw = EMPTY  # noqa: N815 (wire spelling)
    via: msgspec.Raw = EMPTY


_said_in = msgspec.json.Decoder(IdentityFields).decode
_values = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode

_TOO_DEEP = f"The message is nested too deeply: it may have {MAX_DEPTH} levels."
_COMPACT = len('{"id":,"type":"","from":"","to":"","body":}')


class Message(msgspec.Struct, eq=False, gc=False):
    """A parsed message. `recipients` are distinct and in the order given.

    id      JSON text as sent, b"" if absent    type  lower case
    sender  the field `from`                    body  JSON object text, b"{}" if absent
    frame   the frame as it came (UTF-8)        identity_fields  what the body says of its sender
    """

    id: bytes
    type: str
    is_response: bool
    sender: str
    recipients: tuple[str, ...]
    body: bytes
    frame: bytes
    identity_fields: IdentityFields
    _plain: bool = False  # only the five known fields, compact, `body` last, one recipient
    _fields: dict[str, Any] | None = None
    _whole: Message | None = None  # of a copy for one recipient: the message with all of them
    _spliced: dict[tuple[bool, ...], tuple[bytes, bytes]] | None = None
    _written: dict[str, str] | None = None  # recipients as they came, where that is another form

    @property
    def id_key(self) -> str:
        """The id for look-ups: 1 and "1" are the same id.

        So are all JSON spellings of one value, because a responder may spell the id differently
        (docs/reference/messages.md, section 6.2).
        """
        return plain_id(self.id)

    def fields(self) -> dict[str, Any]:
        """The decoded body, cached.

        Raises:
            BadMessage: it cannot be decoded, for instance because it is nested too deeply.
        """
        if self._whole is not None:
            return self._whole.fields()
        if self._fields is None:
            try:
                self._fields = _values.decode(self.body)
            except (msgspec.DecodeError, RecursionError):
                raise BadMessage("The body is not a JSON object that can be read.") from None
        return self._fields

    def as_written(self, to: str) -> str:
        """A recipient as the sender has written it."""
        return self._written.get(to, to) if self._written else to

    def to_one(self, to: str) -> Message:
        """The same message for one of its recipients."""
        return replace(self, recipients=(to,), _plain=False, _fields=None, _whole=self)

    def with_body(self, body: bytes) -> Message:
        """The same message with another body (JSON object text), as rewritten by a policy.

        Raises:
            BadMessage: the body is nested too deeply.
        """
        envelope = RAW_FIELDS.decode(self.frame)
        envelope["body"] = msgspec.Raw(body)
        return replace(
            self, body=body, frame=_encode(envelope), identity_fields=_read(body),
            _plain=False, _fields=None, _whole=None, _spliced=None,
        )  # fmt: skip

    def forwarded(
        self,
        to: str,
        auth: bool,
        asserted: bool = False,
        body: bytes | None = None,
        listeners: Iterable[str] = (),
    ) -> bytes:
        """The frame for one recipient, with the node's marks.

        One copy names one recipient (docs/reference/messages.md, section 9, row 3).

        Args:
            to: the recipient.
            auth: whether a policy permitted the message.
            asserted: whether the sender's identity is verified.
            body: the body as rewritten by a policy, None if it was not.
            listeners: the runtime URLs of the listeners, some of which may be visitors.

        Returns:
            The frame as it came except for the marks, without an access token that must not be sent
            to the domain of the recipient or of a listener.
        """
        said = self.identity_fields
        if (
            self._plain
            and body is None
            and said.auth is EMPTY
            and said.assertedIdentity is EMPTY
            and said.accessToken is EMPTY
            and self.body.startswith(b'{"')
        ):
            global _last_made  # noqa: PLW0603
            rest = len(self.body)  # the length of the frame after the brace that opens the body
            frame = b"".join(
                (self.frame[: -1 - rest], _FIRST_MARKS[auth, asserted], self.frame[-rest:])
            )
            _last_made = frame, self
            return frame
        try:
            if body is None:
                body = self.body
            else:
                said = _read(body)
            crosses = said.accessToken is EMPTY or may_cross(
                said.accessToken, self.sender, to, listeners
            )
            whole = self._whole
            if whole is not None and body is whole.body:
                return whole._copy_for(to, auth, asserted, crosses, said)
            marked = _mark(body if crosses else _without(body, "accessToken"), said, auth, asserted)
            envelope = RAW_FIELDS.decode(self.frame)
        except RecursionError:  # parsed at a smaller stack depth than this
            raise BadMessage(_TOO_DEEP) from None
        envelope["to"] = msgspec.Raw(_encode(to))
        envelope["body"] = msgspec.Raw(marked)
        return _encode(envelope)

    def unmarked(self) -> bytes | None:
        """The frame without the marks that `forwarded` put first; None if it is no plain one."""
        body = self.body
        if self._plain:
            for marks in _FIRST_MARKS.values():
                if body.startswith(marks):
                    return b"".join((self.frame[: -len(body)], body[len(marks) :], b"}"))
        return None

    def said_by(self, identity: bytes) -> Message:
        """A plain message without marks as said by somebody; `identity` is JSON text."""
        body = b"%b%b,%b" % (_SAID_BY, identity, self.body[1:])
        said = replace(self.identity_fields, assertedIdentity=msgspec.Raw(identity))
        return replace(
            self, body=body, frame=b"%b%b}" % (self.frame[: -1 - len(self.body)], body),
            identity_fields=said, _fields=None, _spliced=None,
        )  # fmt: skip

    @property
    def is_unmarked(self) -> bool:
        """Whether a plain frame has none of these marks, wherever."""
        said = self.identity_fields
        return self._plain and said.auth is EMPTY and said.assertedIdentity is EMPTY

    def said_by_nobody(self) -> Message | None:
        """The same without what `said_by` put first; None if it is another one."""
        start = b"%b%b," % (_SAID_BY, self.identity_fields.assertedIdentity)
        if not (self._plain and self.body.startswith(start)):
            return None
        body = b"{" + self.body[len(start) :]
        said = _read(body)
        if said.assertedIdentity is not EMPTY:  # it stood twice
            return None
        return replace(
            self, body=body, frame=b"%b%b}" % (self.frame[: -1 - len(self.body)], body),
            identity_fields=said, _fields=None, _spliced=None,
        )  # fmt: skip

    def is_plain_without(self, names: Iterable[str]) -> bool:
        """Whether a plain frame says nothing of its sender in these fields of the body."""
        said = self.identity_fields
        return self._plain and all(getattr(said, name) is EMPTY for name in names)

    def _copy_for(
        self, to: str, auth: bool, asserted: bool, crosses: bool, said: IdentityFields
    ) -> bytes:
        """The frame for one of several recipients.

        All copies with the same marks are encoded once; they differ in `to` only.
        """
        if self._spliced is None:
            self._spliced = {}
        parts = self._spliced.get((auth, asserted, crosses))
        if parts is None:
            body = self.body if crosses else _without(self.body, "accessToken")
            envelope = RAW_FIELDS.decode(self.frame)
            envelope["body"] = msgspec.Raw(_mark(body, said, auth, asserted))
            del envelope["to"]
            parts = b'{"to":', b"," + _encode(envelope)[1:]
            self._spliced[auth, asserted, crosses] = parts
        return b"%b%b%b" % (parts[0], _encode(to), parts[1])


def vouched(frame: bytes, identity: Identity) -> bytes:
    """A frame with the node's marks that also says whose it is, for the node of another domain.

    `assertedIdentity` comes first then, so that `unmarked` takes it for no frame of its own.
    """
    global _last_made  # noqa: PLW0603
    said = {
        "issuer": identity.issuer, "subject": identity.subject, "username": identity.username,
        "userURL": identity.user_url, "expires": identity.expires,
    }  # fmt: skip
    made, message = _last_made
    if message is not None and made is frame:
        message = message.said_by(_encode(said))
        _last_made = message.frame, message
        return message.frame
    envelope = RAW_FIELDS.decode(frame)
    body = RAW_FIELDS.decode(envelope["body"])
    rest = {key: value for key, value in body.items() if key != "assertedIdentity"}
    envelope["body"] = msgspec.Raw(_encode({"assertedIdentity": said, **rest}))
    return _encode(envelope)


_last_made: tuple[bytes, Message | None] = (b"", None)
"""A frame that `forwarded` has made, and of which message: the last one that is plain."""


def parse_unmarked(frame: bytes) -> Message:
    """Read a frame that the node has made, where the node's marks do not matter.

    Whoever gets such a frame in the turn in which it was made, as a peer does, gets the message of
    which it was made: to read it once more takes as long as all else for it.

    Returns:
        The message, with the marks or without.

    Raises:
        InvalidFrame: it is not a valid message.
    """
    made, message = _last_made
    return message if message is not None and made is frame else parse(frame)


def plain_id(id_: bytes) -> str:
    """The id as normalised text for comparison, without escapes, and 1.0 as 1."""
    if id_.isdigit():
        return id_.decode()
    if id_[:1] == b'"' and b"\\" not in id_:
        return id_[1:-1].decode()
    try:
        value = _values.decode(id_) if id_ else ""
    except msgspec.DecodeError:  # a number beyond all numbers, such as 1e999
        return id_.decode()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else _encode(value).decode()


def parse(frame: bytes) -> Message:
    """Read one frame.

    Args:
        frame: UTF-8 JSON, as it came.

    Raises:
        InvalidFrame: it is not a valid message; the text says why.
    """
    is_ascii = frame.isascii()
    try:
        if not is_ascii:
            frame.decode()  # all of a frame that is passed on must be UTF-8
        envelope = ENVELOPES.decode(frame)
        body = bytes(envelope.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise invalid_frame(frame, error) from None
    to = envelope.to
    sender = envelope.sender
    type_ = envelope.type.lower()
    id_ = bytes(envelope.id)
    recipients = (to,) if isinstance(to, str) else tuple(dict.fromkeys(to))
    if len(frame) > LEAST_DEEP and is_too_deep(frame):
        raise _too_deep(id_, sender, recipients, type_)
    # Fast path: almost every message is plain, and these checks are then equivalent to fault_of.
    plain = (
        is_ascii
        and to.__class__ is str
        and type_ in TYPES
        and id_ != b""
        and id_[0] in SCALAR_START
        and len(id_) <= MAX_ID_LENGTH
        and not FAULTS[sender]
        and not FAULTS[to]
        and body[:1] == b"{"
        # all five fields are present, so a frame of this length has no others
        and len(frame) == _COMPACT + len(id_) + len(type_) + len(sender) + len(to) + len(body)
        and frame.endswith(b"}}")
    )
    written = None
    if not plain:
        if any(map(FAULTS.__getitem__, recipients)):
            written = {canonical(each) or each: each for each in recipients}
            recipients = tuple(written)
        problem = fault_of(envelope, id_, type_, recipients, body)
        if not problem and repeats_a_key(frame):
            problem = "A key of the message stands twice."
        if problem:
            first = recipients[0] if recipients else ""
            id_ = id_ if is_scalar(id_) else b""
            raise InvalidFrame(problem, id_, sender, first, type_ == "response")
        if not body or body == b"null":
            body = b"{}"
    try:
        said = _said_in(body)
    except (msgspec.DecodeError, RecursionError):
        raise _too_deep(id_, sender, recipients, type_) from None
    return Message(id_, type_, type_ == "response", sender, recipients, body, frame, said, plain,
                   _written=written)  # fmt: skip


def _too_deep(id_: bytes, sender: str, recipients: tuple[str, ...], type_: str) -> InvalidFrame:
    """The error for a frame that is nested too deeply."""
    kept_id = id_ if is_scalar(id_) and len(id_) <= MAX_ID_LENGTH else b""
    to = recipients[0] if recipients else ""
    return InvalidFrame(_TOO_DEEP, kept_id, sender, to, type_ == "response")


def reply(message: Message, body: dict[str, Any], sender: str = "") -> bytes:
    """A response: id as it came, from and to swapped (docs/reference/messages.md, section 1.5).

    Args:
        message: the request.
        body: the body of the response.
        sender: its `from`, where that is not the request's recipient.
    """
    sender = sender or message.as_written(message.recipients[0])
    return response(message.id, sender, message.sender, body)


def response(id_: bytes, sender: str, to: str, body: dict[str, Any]) -> bytes:
    """A response from its parts; without an id if the request had none."""
    head = b'{"id":%b,"type":"response"' % id_ if id_ else b'{"type":"response"'
    parties = b',"from":%b,"to":%b,"body":%b}' % (_encode(sender), _encode(to), _encode(body))
    return head + parties


def event(sender: str, to: str, value: Any, id_: int, **more: Any) -> bytes:
    """An `update` by the node itself, such as the gap signal on `<runtime URL>/status`."""
    body = {"value": value, **more}
    return _encode({"id": id_, "type": "update", "from": sender, "to": to, "body": body})


def value_of(body: Mapping[str, Any]) -> Any:
    """The `value` of a body; an object may come as its JSON text.

    Raises:
        BadMessage: it looks like JSON text and is none.
    """
    value = body.get("value")
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            raise BadMessage("`value` looks like JSON text and is none.") from None
    return value


def error_body(error: NodeError) -> dict[str, Any]:
    """The body of an error: its code, and its text under both keys that clients read (row 8)."""
    text = error.description
    return {"code": error.code, "desc": text, "description": text}


def _read(body: bytes) -> IdentityFields:
    try:
        return _said_in(body)
    except (msgspec.DecodeError, RecursionError):
        raise BadMessage(_TOO_DEEP) from None


def _mark(body: bytes, claimed: IdentityFields, auth: bool, asserted: bool) -> bytes:
    if claimed.auth is not EMPTY or claimed.assertedIdentity is not EMPTY:
        body = _without(body, "auth", "assertedIdentity")
    marks = _MARKS[auth, asserted]
    rest = body[1:]
    return marks + b"}" if rest.lstrip() == b"}" else b"%b,%b" % (marks, rest)


def _without(body: bytes, *names: str) -> bytes:
    fields = RAW_FIELDS.decode(body)
    for name in names:
        fields.pop(name, None)
    return _encode(fields)


_MARKS = {
    (auth, asserted): (b'{"auth":' + (b"true" if auth else b"false"))
    + (b',"assertedIdentity":true' if asserted else b"")
    for auth in (True, False)
    for asserted in (True, False)
}
_SAID_BY = b'{"assertedIdentity":'
_FIRST_MARKS = {which: marks + b"," for which, marks in _MARKS.items()}
