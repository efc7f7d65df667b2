"""An object that two peers share."""

from __future__ import annotations

from typing import Any

from peers import Peer

from msgnode.runtime.python.syncher.observer import DataObjectObserver
from msgnode.runtime.python.syncher.reporter import DataObjectReporter

PICNIC = {"title": "Picnic", "guests": ["Ann", "Ben"], "at": {"place": {"name": "park"}}}


async def shared(
    alice: Peer, bob: Peer, data: dict[str, Any] | None = None
) -> tuple[DataObjectReporter, DataObjectObserver]:
    made = await alice.syncher.create(PICNIC if data is None else data)
    return made, await bob.syncher.subscribe(made.url)
