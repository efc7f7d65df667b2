"""The stub of a peer, and how it is loaded in a sandbox.

A stub that is to replace another is first tried, without a socket and without messages, so that one
that cannot be loaded replaces nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgnode.core import addresses
from msgnode.sandbox import pipe
from msgnode.sandbox.pipe import Loaded, LoadFailed, Said
from msgnode.sandbox.process import SandboxLimits, SandboxProcess

from . import crossing
from .kinds import KINDS, UNKNOWN, PeerKind
from .peer_session import VouchedFor

LOAD_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PeerStub:
    """A peer that is served, and its stub.

    Attributes:
        domain: the peer's domain.
        stub_url: the runtime URL of the peer's session here (peer_session.py).
        url_there: the runtime URL of this node's session there, which the stub opens.
        digest, source, configuration: of its stub.
        hosts: the hosts that the stub may connect to.
        kind: the kind of node that it leads to.
        vouches: whether what its node says over a link of a sender's identity is believed.
    """

    domain: str
    stub_url: str
    url_there: str
    digest: str
    source: str
    configuration: dict[str, Any]
    hosts: frozenset[str]
    kind: PeerKind = KINDS[UNKNOWN]
    vouches: bool = False

    @property
    def vouched_for(self) -> VouchedFor | None:
        """Whose a message is, as its node says; None if that is not believed."""
        own = addresses.parse(self.url_there).home
        return partial(crossing.vouched_for, own=own, peer=self.domain) if self.vouches else None


async def load(
    sandbox: SandboxProcess, stub: PeerStub, loaded: asyncio.Event
) -> asyncio.Future[str]:
    """Start a sandbox with a stub; if it is not loaded in time, the sandbox is killed.

    Args:
        sandbox: the sandbox, not started yet.
        stub: the stub to load.
        loaded: set by whoever receives the sandbox's operations, when it is loaded.

    Returns:
        A future of the sandbox's end, with the reason.

    Raises:
        OSError: it does not start.
    """
    await sandbox.start()
    configuration = {**stub.configuration, "runtimeURL": stub.url_there}
    sandbox.send(pipe.load(stub.source, stub.stub_url, configuration))
    ended = asyncio.ensure_future(sandbox.ended())
    loading = asyncio.ensure_future(loaded.wait())
    first = asyncio.FIRST_COMPLETED
    await asyncio.wait({ended, loading}, timeout=LOAD_SECONDS, return_when=first)
    loading.cancel()
    if not loaded.is_set():
        sandbox.kill(f"it was not loaded within {LOAD_SECONDS:g} s")
    return ended


async def fault_of(stub: PeerStub, limits: SandboxLimits, starts: asyncio.Semaphore) -> str:
    """Why a stub cannot be loaded, "" if it can. A sandbox that does not start is not its fault."""
    loaded = asyncio.Event()

    def said(what: Said) -> None:
        if isinstance(what, Loaded):
            loaded.set()
        elif isinstance(what, LoadFailed):
            sandbox.kill(f"it cannot be loaded: {what.error}")

    sandbox = SandboxProcess(limits, said)
    ended: asyncio.Future[str] | None = None
    try:
        with suppress(OSError):
            async with starts:
                ended = await load(sandbox, stub, loaded)
    finally:
        sandbox.kill("it was only tried")
    if ended is None:
        return ""
    why = await ended
    return "" if loaded.is_set() else pipe.shown(why)
