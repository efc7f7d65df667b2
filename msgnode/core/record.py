"""The traffic record: a row of metadata for each recipient of each message, never the body.

And one for each step in the life of a session that somebody will ask for.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from . import redaction

OTHER_TYPE = "other"
"""The type in the record of a message whose own type the node does not know: types are labels of
metrics, and so must be few."""


class Outcome(StrEnum):
    """What became of a message at one recipient."""

    DELIVERED = "delivered"
    QUEUED = "queued"
    ANSWERED = "answered"
    UNDELIVERABLE = "undeliverable"
    BLOCKED = "blocked"
    REFUSED = "refused"
    DROPPED = "dropped"


class TrafficRecord(msgspec.Struct, frozen=True, gc=False):
    """One recipient of one message, as it was said.

    Whoever keeps or shows a row cuts the tokens out of it first.

    at         seconds since the epoch, when the frame was read
    id         the message's id as JSON text, as sent
    to         one recipient; rows of a `to` list differ only in it and what follows from it
    size       bytes of the frame
    listeners  sessions it was given to
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
    """What a row of the record says of a session."""

    OPENED = "opened"
    RESUMED = "resumed"
    LOST = "lost"
    ENDED = "ended"


class ReservationEvent(StrEnum):
    """What a row of the record says of reservations of bandwidth."""

    RESERVED = "reserved"
    REFUSED = "reservation-refused"
    RELAYED = "relayed"
    ENDED = "reservation-ended"


class SessionRecord(msgspec.Struct, frozen=True, gc=False):
    """One step in the life of a session, or of a reservation that was made in it.

    at           seconds since the epoch
    ending       how it ended, "" if it did not
    code         close code that the node gave the socket; 0 if that went away of itself
    lasted       seconds: since the session was opened; of a lost socket, since it had the session
    resumptions  of a session that ended, how often it was resumed

    Of a reservation, `ending` is its traffic class or, once it has ended, the reason; `code` is
    that of the answer, `lasted` since it was made. What was relayed for reservations of a class is
    told without a session, in `size` bytes since the last such row; fewer than none correct a sum.
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
    """The row as it may be shown."""
    return msgspec.structs.replace(
        record,
        id=redaction.cut_id(record.id),
        sender=redaction.cut(record.sender),
        to=redaction.cut(record.to),
    )
