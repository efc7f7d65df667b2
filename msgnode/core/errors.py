"""The one error tree of the node: what is raised anywhere becomes the answer of the pipeline.

Codes are HTTP status numbers (docs/reference/messages.md, section 1.4). `description` is text for
the sender of the message and therefore never carries a session token or an internal detail.
"""

from __future__ import annotations

from typing import ClassVar


class NodeError(Exception):
    """An answer that refuses: `code` and `description` travel to the sender as they are."""

    code: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"

    def __init__(self, description: str = "") -> None:
        super().__init__(description or self.title)
        self.description = description or self.title


class BadMessage(NodeError):
    """The message (or the request in its body) does not have the form the reference asks for."""

    code = 400
    title = "Bad message"


class NotIdentified(NodeError):
    """The connection has no session yet, or the session no identity where one is needed."""

    code = 401
    title = "No session"


class Forbidden(NodeError):
    """The speaker may not do this: another session's address, a blocked message, a ban."""

    code = 403
    title = "Forbidden"


class NotFound(NodeError):
    """Nobody listens to the address."""

    code = 404
    title = "Nobody listens to this address"


class Conflict(NodeError):
    """The state of the session does not allow it now."""

    code = 409
    title = "Conflict"


class Gone(NodeError):
    """It was there and has ended for good, by its owner's word or by its own date."""

    code = 410
    title = "Gone"


class PreconditionFailed(NodeError):
    """It is not in the state that the request says it must be in."""

    code = 412
    title = "Precondition failed"


class TooMany(NodeError):
    """A limit of the node has been reached by this speaker."""

    code = 429
    title = "Too many"


class InternalFault(NodeError):
    """A fault of the node itself; the cause is in its log, not in the answer."""

    code = 500
    title = "Internal error of the messaging node"


class BadGateway(NodeError):
    """A foreign node or a back-end answered with something that is not an answer."""

    code = 502
    title = "The foreign node gave no valid answer"


class Unavailable(NodeError):
    """The address exists, and its owner (or the resource) is out of reach at the moment."""

    code = 503
    title = "Temporarily unavailable"


class GatewayTimeout(NodeError):
    """A foreign node or a back-end did not answer in time."""

    code = 504
    title = "No answer in time"


def unknown_value(said: str) -> BadMessage:
    """The refusal of a value that the database does not know, such as NUL in a text.

    Args:
        said: the text of the database's error; what follows its first line is about the query.
    """
    first, *_ = said.splitlines() or [""]
    return BadMessage(f"A value is none that the database knows: {first.rstrip('.')}.")
