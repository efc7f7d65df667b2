"""An object that two peers share, and what its reporter may say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peers import Peer

from msgnode.runtime.python.syncher.observer import DataObjectObserver
from msgnode.runtime.python.syncher.reporter import DataObjectReporter

Message = dict[str, Any]
PICNIC = {"title": "Picnic", "guests": ["Ann", "Ben"], "at": {"place": {"name": "park"}}}


async def shared(
    alice: Peer, bob: Peer, data: dict[str, Any] | None = None
) -> tuple[DataObjectReporter, DataObjectObserver]:
    made = await alice.syncher.create(PICNIC if data is None else data)
    return made, await bob.syncher.subscribe(made.url)


def numbered(made: DataObjectReporter, version: Any, **more: Any) -> Message:
    body = {"version": version, "attribute": "title", "value": f"t{version}", **more}
    to = f"{made.url}/changes"
    return {"id": 1000, "type": "update", "from": made.url, "to": to, "body": body}


def losing(made: DataObjectReporter) -> Callable[[Message], int]:
    return lambda message: 0 if message["to"] == f"{made.url}/changes" else 1
