"""The MiniBUS: message delivery inside one sandbox, or in a program that has no more than a stub.

    bus = MiniBus(uplink)      in a sandbox: what is posted goes up to the MessageBUS, always;
                               `deliver` takes what comes down from there
    bus = MiniBus()            alone: what is posted is delivered here

Rules
- What is delivered goes to who waits for it, else to the listeners of its `to`, and to `*` if there
  are none or the address is no hyperty's.
- Alone, the bus is the whole runtime: `*` is where a protostub listens, an address that has
  listeners is local, and what a stub brought in (it has `via`) never goes to `*`.
"""

from __future__ import annotations

from collections.abc import Callable

from .bus import Bus
from .messages import Message, body_of

Uplink = Callable[[Message], None]

_DOWN = "*"  # marks what came down from the MessageBUS


class MiniBus(Bus):
    """A bus of one sandbox."""

    def __init__(self, uplink: Uplink | None = None) -> None:
        super().__init__()
        self._uplink = uplink

    def deliver(self, message: Message) -> None:
        """Take a message from the MessageBUS, for whoever is here."""
        self._post(message, _DOWN)

    def _route(self, message: Message, via: str, size: int) -> None:
        if self._uplink is not None and not via:
            self._uplink(message)
            return
        if message["type"] == "response" and self._answers.take(message):
            return
        found = self._found(message["to"]) or []
        everything = self._listeners.get("*") or []
        if self._uplink is None:
            if found or body_of(message).get("via"):
                everything = []
        elif found and message["to"].startswith("hyperty"):
            everything = []
        if found or everything:
            self._give([*found, *everything], message)
        else:
            self.undeliverable(message, 404, f"Nobody listens to {message['to']}.")
