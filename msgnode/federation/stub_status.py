"""What a stub, or the peer behind it, says of its state: one word, and why."""

from __future__ import annotations

from typing import NamedTuple

from msgnode.core import messages
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import BadMessage
from msgnode.core.messages import Message

STARTING, CONNECTING, LIVE = "starting", "connecting", "live"
DISCONNECTED, WAITING, STOPPED = "disconnected", "waiting", "stopped"
IDLE = "idle"
STATE_OF = {
    "created": STARTING,
    "in-progress": CONNECTING,
    "live": LIVE,
    "connected": LIVE,
    "disconnected": DISCONNECTED,
}
"""The states that a stub says itself."""
GAP = "gap"
"""Messages were lost, or what the peer held for this node is gone."""


class StubStatus(NamedTuple):
    """A status; `value` is "" where it says nothing that can be read."""

    value: str
    text: str


def read(message: Message, address: str) -> StubStatus | None:
    """The status that a message is, None if it is to another address."""
    if message.recipients[0] != address:
        return None
    try:
        body = message.fields()
    except BadMessage:
        return StubStatus("", "")
    value = body.get("value")
    text = str(body.get("desc") or body.get("description") or "")
    return StubStatus(value if isinstance(value, str) else "", text)


def read_without_id(text: bytes, address: str) -> StubStatus | None:
    """The same of what is no message because it has no id: stubs tell of themselves like that."""
    try:
        return read(messages.parse(b'{"id":0,' + text.lstrip()[1:]), address)
    except InvalidFrame:
        return None
