"""Rows of the traffic record: metadata for each recipient of each message, never the body.

There are also rows for the steps in the life of sessions and of bandwidth reservations.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from . import redaction

OTHER_TYPE = "other"
"""The recorded type of a message of unknown type: types are metric labels, so they must be few."""


class Outcome(StrEnum):
    """The outcome of a message at one recipient."""

    DELIVERED = "delivered"
    QUEUED = "queued"
    ANSWERED = "answered"
    UNDELIVERABLE = "undeliverable"
    BLOCKED = "blocked"
    REFUSED = "refused"
    DROPPED = "dropped"


class TrafficRecord(msgspec.Struct, frozen=True, gc=False):
    """One recipient of one message, unredacted.

    Tokens must be cut out of a row before it is stored or shown (`without_tokens`).

    at         seconds since the epoch, when the frame was read
    id         the message's id as JSON text, as sent
    to         one recipient; a `to` list gives a row for each
    size       bytes of the frame
    listeners  number of sessions that accepted it
    component  name of the internal component that answered, "" if none
    code       the code of the node's own answer or refusal, 0 if it gave none
    rule       id of the deciding rule, "" if none decided
    latency    seconds inside the node, from reading the frame to the last hand-over
    runtime    URL of the sending session's runtime, "" if it is not known
    """

    at: float
    session: str
    id: str
    type: str
    sender: str
    to: str
    size: int
    listeners: int
    outcome: Outcome
    component: str = ""
    code: int = 0
    effect: str = "notApplicable"
    rule: str = ""
    asserted: bool = False
    latency: float = 0.0
    runtime: str = ""


class SessionEvent(StrEnum):
    """The step of a session that a row records."""

    OPENED = "opened"
    RESUMED = "resumed"
    LOST = "lost"
    ENDED = "ended"


class ReservationEvent(StrEnum):
    """The step of a bandwidth reservation that a row records."""

    RESERVED = "reserved"
    REFUSED = "reservation-refused"
    RELAYED = "relayed"
    ENDED = "reservation-ended"


class SessionRecord(msgspec.Struct, frozen=True, gc=False):
    """One step in the life of a session, or of a reservation that was made in it.

    at           seconds since the epoch
    ending       how it ended, "" if it did not
    code         close code with which the node closed the socket; 0 if the client left by itself
    lasted       seconds since the session was opened; of a lost socket, since it was attached
    resumptions  how often a session that ended was resumed

    For a reservation `ending` is its traffic class or, once it has ended, the reason; `code` is
    that of the answer; `lasted` counts from when it was made. The bytes relayed for a class are
    rows without a session: `size` since the last such row, negative to correct the sum.
    """

    at: float
    session: str
    runtime: str
    event: SessionEvent | ReservationEvent
    ending: str = ""
    code: int = 0
    lasted: float = 0.0
    resumptions: int = 0
    size: int = 0


def without_tokens(record: TrafficRecord) -> TrafficRecord:
    """A redacted copy of the row, which may be stored and shown."""
    return msgspec.structs.replace(
        record,
        id=redaction.cut_id(record.id),
        sender=redaction.cut(record.sender),
        to=redaction.cut(record.to),
    )
