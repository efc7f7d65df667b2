"""The fences of one channel, so that nothing on it overtakes what is still at the node. Pure.

Rules
- The first one is for all that went through the node before the channel was open. If it is not
  answered everything goes on through the node, and it is tried once more.
- Where the channel is in use, and messages went through the node to an address of which nobody knew
  that it is at the other side, another one is for that address. If it is not answered the address
  stays with the node as long as the channel is open.
"""

from __future__ import annotations

from msgnode.runtime.python.messages import Message

TRIES = 2  # of the first one, for one channel


class Fences:
    """Their numbers, and what became of them."""

    def __init__(self) -> None:
        self.has_passed = False
        self._number = 0
        self._failures = 0
        self._early = ("", 0)
        self._waiting: set[str] = set()  # addresses
        self._at_node: set[str] = set()

    def opened(self) -> None:
        """There is a new channel, with the first fence to come."""
        self.has_passed = False
        self._failures = 0
        self._waiting.clear()
        self._at_node.clear()

    def next(self) -> int:
        """The number of a fence that takes the place of those before."""
        self._number += 1
        return self._number

    def is_current(self, number: object) -> bool:
        """Whether it is the last one."""
        return number == self._number

    def add(self, address: str) -> bool:
        """Another fence is for this address too; False if it stays with the node anyway."""
        if address in self._at_node:
            return False
        self._waiting.add(address)
        return True

    def passed(self) -> None:
        """The last one was answered, behind all that went before it."""
        self.has_passed = True
        self._waiting.clear()

    def failed(self) -> bool:
        """The last one was not answered; whether the first is to be tried again."""
        if self.has_passed:
            self._at_node |= self._waiting
        else:
            self._failures += 1
        self._waiting.clear()
        return self._failures < TRIES

    def is_at_node(self, message: Message) -> bool:
        """Whether a message stays with the node, for the sake of those before it."""
        return message.get("to") in self._at_node and message.get("type") != "response"

    def came_early(self, epoch: str, number: int) -> bool:
        """One came through the node whose channel is not open here yet; True."""
        self._early = epoch, number
        return True

    def early(self, epoch: str) -> int | None:
        """The number of the one that came before this channel was open."""
        return self._early[1] if self._early[0] == epoch else None
