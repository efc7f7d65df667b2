"""Which traces an operator watches. Pure."""

from __future__ import annotations

import msgspec

from msgnode.bus.trace import TracePart
from msgnode.core import addresses
from msgnode.core.identity import Speaker
from msgnode.core.messages import Message

_JOINED = ("response", "link")
"""Why a part of a trace may be shown to whoever may see the trace."""


class TraceFilter(msgspec.Struct, frozen=True):
    """What an operator watches; what is empty does not filter.

    Attributes:
        address: sender or recipient, with all below it.
        session: id or runtime URL of the sending session.
        user: name or subject of the verified sender.
        trace: a trace id.
    """

    address: str = ""
    session: str = ""
    user: str = ""
    type: str = ""
    outcome: str = ""
    rule: str = ""
    trace: str = ""

    def may_want(self, message: Message, speaker: Speaker) -> bool:
        """Whether a message that has just come may be one of them."""
        if self.trace or (self.type and message.type != self.type):
            return False
        if self.session and self.session not in (speaker.session_id, speaker.runtime_url):
            return False
        if self.user and (
            speaker.identity is None
            or self.user not in (speaker.identity.username, speaker.identity.subject)
        ):
            return False
        return not self.address or any(
            addresses.is_under(each, self.address) for each in (message.sender, *message.recipients)
        )

    def wants(self, part: TracePart) -> bool:
        """Whether a message that was traced is one of them."""
        if self.trace:
            return part.trace == self.trace
        if part.why in _JOINED:
            return True
        return (
            (not self.type or part.type == self.type)
            and (not self.outcome or part.outcome == self.outcome)
            and (not self.rule or part.rule == self.rule)
            and (not self.session or self.session in (part.session, part.runtime))
            and (not self.user or part.user == self.user)
            and (
                not self.address
                or any(addresses.is_under(each, self.address) for each in _parties(part))
            )
        )


def _parties(part: TracePart) -> tuple[str, ...]:
    return (part.sender, *part.to.split(", "))
