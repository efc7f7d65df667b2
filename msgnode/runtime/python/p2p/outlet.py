"""What a link does things through, the channel, the node and the bus; and which way it takes."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Protocol

from msgnode.runtime.python.messages import Message


class Way(StrEnum):
    """Where what is sent goes."""

    NODE = "node"
    FENCING = "fencing"
    CHANNEL = "channel"
    RESUMING = "resuming"


class Outlet(Protocol):
    """What a link does things through."""

    def to_channel(self, frame: str | bytes) -> None:
        """Hand a frame to the channel; one that has closed takes it without a word."""
        ...

    def has_room(self) -> bool:
        """Whether the channel's buffer takes another frame."""
        ...

    def to_node(self, message: Message) -> None:
        """Send a message through the node."""
        ...

    def ask(self, method: str, params: dict[str, Any]) -> None:
        """Ask the other stub through the node; the answer comes to `Link.answered`."""
        ...

    def take(self, message: Message) -> bool:
        """Deliver a message of the channel; False if it cannot be decided yet (`Link.proceed`)."""
        ...

    def refuse(self, message: Message, code: int, text: str) -> None:
        """Tell the sender that his message does not go out; or say that there is a gap."""
        ...

    def close(self, reason: str) -> None:
        """Close the channel."""
        ...
