"""Messages on the wire: tolerant reading, strict writing.

The rules of the wire are in docs/reference/messages.md, sections 1 and 9.

parse()  one frame -> Message. The envelope is decoded once; the body stays raw JSON text.
Message  what the node needs of it, and `forwarded()`: the frame for a recipient, as it came except
         for the marks that only the node may set.
reply()  a response to a message.

Rules
- A frame is a JSON object with an envelope (envelope.py); its `id` is given back exactly as it was
  written.
- A `type` that is none of TYPES is for the recipient to understand: it is passed on unread.
- `body.auth` and `body.assertedIdentity` are statements of the node. What a sender claims there is
  dropped by decoding, never by searching the text, because keys can be escaped.
- `body.accessToken` does not cross the border to another domain (token_scope.py).
"""

from __future__ import annotations

from typing import Any

import msgspec

from .envelope import (
    EMPTY,
    ENVELOPES,
    RAW_FIELDS,
    InvalidFrame,
    fault_of,
    invalid_frame,
    is_scalar,
    repeats_a_key,
)
from .errors import BadMessage, NodeError
from .token_scope import may_cross


class IdentityFields(msgspec.Struct):
    """What a body says of its sender, undecoded; empty where it says nothing.

    `auth` and `assertedIdentity` are claims of no worth.
    """

    auth: msgspec.Raw = EMPTY
    assertedIdentity: msgspec.Raw = EMPTY  # noqa: N815 (wire spelling)
    identity: msgspec.Raw = EMPTY
    idToken: msgspec.Raw = EMPTY  # noqa: N815 (wire spelling)
    accessToken: msgspec.Raw = EMPTY  # noqa: N815 (wire spelling)
    via: msgspec.Raw = EMPTY


_said = msgspec.json.Decoder(IdentityFields)
_values = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode

_COMPACT = len('{"id":,"type":"","from":"","to":"","body":}')


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
        envelope = RAW_FIELDS.decode(self.frame)
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
                body, said = self.body, self._said or self.said
            else:
                said = _read(body)
            crosses = said.accessToken is EMPTY or may_cross(said.accessToken, self.sender, to)
            whole = self._whole
            if whole is not None and body is whole.body:
                return whole._copy_for(to, auth, asserted, crosses, said)
            marked = _mark(body if crosses else _without(body, "accessToken"), said, auth, asserted)
            if self._plain:
                return b"%b%b}" % (self.frame[: -1 - len(self.body)], marked)
            envelope = RAW_FIELDS.decode(self.frame)
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
            envelope = RAW_FIELDS.decode(self.frame)
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
        envelope = ENVELOPES.decode(frame)
        body = bytes(envelope.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise invalid_frame(frame, error) from None
    to = envelope.to
    type_ = envelope.type.lower()
    id_ = bytes(envelope.id)
    recipients = (to,) if to.__class__ is str else tuple(dict.fromkeys(to))
    problem = fault_of(envelope, id_, type_, recipients, body)
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
        elif repeats_a_key(frame):
            problem = "A key of the message stands twice."
    if problem:
        first = to if to.__class__ is str else next(iter(recipients), "")
        id_ = id_ if is_scalar(id_) else b""
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
