"""A Python runtime as a process that shares data objects, for tests.

Usage: sharer.py OPTIONS    (JSON: domain, catalogues)
Writes a line of JSON once it is there; reads lines {do, …} and answers each with a line.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from typing import Any

from msgnode.runtime.python import Runtime, Settings, SyncError, Syncher


class Sharing:
    """What a test tells it to do, and what became of it."""

    def __init__(self, syncher: Syncher) -> None:
        self._syncher = syncher
        self._object: Any = None
        self._copy: Any = None
        self._last = 0
        self._kept: dict[str, Any] = {"unnoticed": [], "reads": 0, "refused": []}
        self._running: asyncio.Task[None] | None = None
        self._stopped = False

    async def create(self, _: Any) -> dict[str, Any]:
        self._object = await self._syncher.create({"n": 0, "list": []}, name="shared")
        return {"url": self._object.url}

    async def subscribe(self, order: Any) -> dict[str, Any]:
        self._copy = await self._syncher.subscribe(order["url"])
        self._last = self._copy.data["n"]
        self._copy.on_change(self._changed)
        return {}

    def _changed(self, change: Any) -> None:
        if change["attribute"] == "":
            self._kept["reads"] += 1
            self._last = self._copy.data["n"]
        elif change["attribute"] == "n":
            if change["value"] != self._last + 1:
                self._kept["unnoticed"].append([self._last, change["value"]])
            self._last = change["value"]

    async def run(self, order: Any) -> dict[str, Any]:
        self._running = asyncio.create_task(self._run(order["times"]))
        return {}

    async def _run(self, times: int) -> None:
        """Twenty changes a second, or a child a second."""
        for n in range(1, times + 1):
            if self._stopped:
                break
            if self._object is not None:
                data = self._object.data
                data["n"] += 1
                if n % 10 == 0:
                    data["list"].append({"n": n})
                if len(data["list"]) > 20:
                    del data["list"][:7]
            elif n % 20 == 0:
                try:
                    await self._copy.add_child({"n": n})
                except SyncError as error:
                    self._kept["refused"].append(str(error))
            await asyncio.sleep(0.05)

    async def stop(self, _: Any) -> dict[str, Any]:
        self._stopped = True
        return {}

    async def finish(self, _: Any) -> dict[str, Any]:
        if self._running is not None:
            await self._running
        return {}

    async def state(self, _: Any) -> dict[str, Any]:
        it = self._object or self._copy
        children = [asdict(child) for child in it.children]
        shown = {"data": it.data.copy(), "version": it.version, "children": children}
        return {**shown, **self._kept}


async def main() -> None:
    async with Runtime(Settings(**json.loads(sys.argv[1]))) as runtime:
        state = await runtime.log_in()
        assert state == "live", state
        sharing = Sharing(Syncher(runtime))
        print("{}", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            print(json.dumps(await getattr(sharing, order["do"])(order)), flush=True)


asyncio.run(main())
