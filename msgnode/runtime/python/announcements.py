"""What a node held for a stub that is no more is subscribed again through the one that follows."""

from __future__ import annotations

from collections.abc import Callable

from .message_bus import MessageBus
from .messages import Message, code_of
from .stub_list import Held, StubEntry

AT_A_TIME = 100  # addresses in one request
_TIMEOUT = 408


def announce(entry: StubEntry, bus: MessageBus, tell: Callable[[StubEntry, Message], None]) -> None:
    """Subscribe all of them, and report a `gap`.

    Args:
        entry: of a stub that was started anew.
        bus: that of the runtime.
        tell: reports a status event of the entry.
    """

    def gap(desc: str) -> None:
        head = {"type": "update", "from": entry.url, "to": f"{entry.url}/status"}
        tell(entry, {**head, "body": {"value": "gap", "desc": desc}})

    batches: dict[Held, list[str]] = {}
    for address, how in entry.held.items():
        batches.setdefault(how, []).append(address)
    for (sender, to, source), addresses in batches.items():
        for first in range(0, len(addresses), AT_A_TIME):
            named = addresses[first : first + AT_A_TIME]

            def answered(answer: Message, count: int = len(named)) -> None:
                code = code_of(answer)
                if code >= 300 and code != _TIMEOUT:
                    gap(f"The node answers {code} to {count} addresses that it held before.")

            body = {"resources": named, **({"source": source} if source else {})}
            message = {"type": "subscribe", "from": sender, "to": to, "body": body}
            bus.post_message(message, answered)
    if batches:
        gap("The stub was started anew, with a session of its own.")
