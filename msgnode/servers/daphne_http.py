"""Daphne's HTTP side: requests that drip in, or ask for nothing, or were reset, end."""

from __future__ import annotations

import time
from typing import Any

from msgnode.core.faults import FAULTS, RESET
from msgnode.servers.daphne_internals import channel_of, is_reset  # first: installs the reactor

from daphne.http_protocol import HTTPFactory, WebRequest  # isort: skip
from twisted.internet import reactor as _reactor  # isort: skip

reactor: Any = _reactor


class NodeRequest(WebRequest):
    """A request that must be complete within a time, however slowly it drips in.

    Twisted only ends connections on which nothing comes at all.
    """

    def __init__(self, channel: Any, *args: Any, **options: Any) -> None:
        self.begun_at = time.monotonic()
        channel.was_asked = True
        super().__init__(channel, *args, **options)

    def check_timeouts(self) -> None:
        """Called by Daphne every other second. `request_start` is when all of it was there."""
        channel = getattr(self, "channel", None)  # a request that is answered has none
        if channel is None or end_if_reset(channel.transport):
            return
        patience = self.server.request_patience
        if not hasattr(self, "request_start") and time.monotonic() - self.begun_at > patience:
            self.channel.transport.abortConnection()
        else:
            super().check_timeouts()


def end_if_reset(transport: Any) -> bool:
    """End a connection that its peer has reset unnoticed; whether it was one."""
    if not is_reset(transport):
        return False
    FAULTS.note(RESET)
    transport.abortConnection()
    return True


class NodeHttpFactory(HTTPFactory):
    """Makes the protocol of each HTTP connection."""

    def buildProtocol(self, addr: Any) -> Any:  # noqa: N802 (Twisted's name)
        protocol = super().buildProtocol(addr)
        protocol.requestFactory = NodeRequest
        reactor.callLater(self.server.request_patience, _drop_unasking, protocol)
        return protocol


def _drop_unasking(protocol: Any) -> None:
    """End a connection whose first request has not even begun."""
    channel = channel_of(protocol)
    if not getattr(channel, "was_asked", False) and channel.transport is not None:
        channel.transport.abortConnection()
