"""The errors of the node: the pipeline turns one that is raised anywhere into an answer.

Codes are HTTP status codes (docs/reference/messages.md, section 1.4). `description` is text for the
sender of the message, so it must not contain session tokens or internal details.
"""

from __future__ import annotations

from typing import ClassVar


class NodeError(Exception):
    """A refusal: `code` and `description` are sent to the sender as they are."""

    code: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"

    def __init__(self, description: str = "") -> None:
        super().__init__(description or self.title)
        self.description = description or self.title


class BadMessage(NodeError):
    """The message, or the request in its body, is malformed."""

    code = 400
    title = "Bad message"


class NotIdentified(NodeError):
    """The connection has no session, or the session lacks a required identity."""

    code = 401
    title = "No session"


class Forbidden(NodeError):
    """The speaker may not do this: another session's address, a policy, a ban."""

    code = 403
    title = "Forbidden"


class NotFound(NodeError):
    """Nobody listens to the address."""

    code = 404
    title = "Nobody listens to this address"


class Conflict(NodeError):
    """The current state does not allow it."""

    code = 409
    title = "Conflict"


class Gone(NodeError):
    """It has ended for good: its owner ended it, or it expired."""

    code = 410
    title = "Gone"


class PreconditionFailed(NodeError):
    """It is not in the state that the request requires."""

    code = 412
    title = "Precondition failed"


class TooMany(NodeError):
    """This speaker has reached a limit of the node."""

    code = 429
    title = "Too many"


class InternalFault(NodeError):
    """A fault of the node itself; its cause is in the log, not in the answer."""

    code = 500
    title = "Internal error of the messaging node"


class BadGateway(NodeError):
    """A foreign node or a back-end gave an invalid answer."""

    code = 502
    title = "The foreign node gave no valid answer"


class Unavailable(NodeError):
    """The address exists, but its owner or resource is temporarily out of reach."""

    code = 503
    title = "Temporarily unavailable"


class GatewayTimeout(NodeError):
    """A foreign node or a back-end did not answer in time."""

    code = 504
    title = "No answer in time"


def unknown_value(said: str) -> BadMessage:
    """The refusal of a value that the database cannot store, such as NUL in a text.

    Args:
        said: the text of the database's error; only its first line is about the value.
    """
    first, *_ = said.splitlines() or [""]
    return BadMessage(f"A value is none that the database knows: {first.rstrip('.')}.")
