"""Reported objects that are kept for resume(): in memory and, with a storage, over a restart.

The copy follows the object's changes as any observer's does. It is written to the storage a quarter
of a second after a change; a storage that refuses is told to the error hook.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

from msgnode.runtime.python.listeners import Listening
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message, body_of

from .changes import apply_change, plain
from .objects import new_incarnation

WRITE_AFTER = 0.25  # seconds

Storage = MutableMapping[str, str]


class StoredObjects:
    """Those of one runtime."""

    def __init__(self, bus: MessageBus, domain: str, storage: Storage | None) -> None:
        self._bus = bus
        self._storage = storage
        self._key = f"msgnode.objects.{domain}"
        self._all: dict[str, dict[str, Any]] = {}
        self._listenings: dict[str, Listening] = {}
        self._unwritten: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        for url in self._read(self._key) or []:
            stored = self._read(f"{self._key}.{url}")
            if isinstance(stored, dict):
                self._take(url, stored)

    def get(self, url: str) -> dict[str, Any]:
        """One of them: hyperty, schema, value, observers."""
        return self._all[url]

    def has(self, url: str) -> bool:
        """Whether an object is kept."""
        return url in self._all

    def of(self, hyperty: str) -> dict[str, dict[str, Any]]:
        """Those that a hyperty reported."""
        return {url: each for url, each in self._all.items() if each["hyperty"] == hyperty}

    def keep(self, url: str, hyperty: str, schema: str, value: dict[str, Any]) -> None:
        """Keep an object from now on."""
        kept = {"version": 0, "childrenObjects": {}, **plain(value, is_ours=False)}
        self._take(url, {"hyperty": hyperty, "schema": schema, "value": kept, "observers": []})
        self._touch(url)
        self._write(self._key, list(self._all))

    def observed(self, url: str, observers: dict[str, str]) -> None:
        """An object's observers are others now."""
        if url in self._all:
            self._all[url]["observers"] = [list(each) for each in observers.items()]
            self._touch(url)

    def begin_anew(self, url: str) -> None:
        """Resume an object: its last changes before a crash may not be in this copy."""
        self._all[url]["value"]["incarnation"] = new_incarnation()
        self._touch(url)

    def forget(self, url: str) -> None:
        """Keep an object no more."""
        if self._all.pop(url, None) is not None:
            self._listenings.pop(url).remove()
            self._unwritten.discard(url)
            self._write(self._key, list(self._all))
            self._write(f"{self._key}.{url}", None)

    def close(self) -> None:
        """Write down what is not written."""
        if self._timer is not None:
            self._timer.cancel()
        self._flush()

    def _take(self, url: str, stored: dict[str, Any]) -> None:
        self._all[url] = stored

        def follow(message: Message) -> None:
            is_own = message["from"] == url and not body_of(message).get("via")
            if is_own and message["type"] == "update":
                self._follow(url, body_of(message))

        self._listenings[url] = self._bus.add_listener(f"{url}/changes", follow)

    def _follow(self, url: str, change: dict[str, Any]) -> None:
        value = self._all[url]["value"]
        number = change.get("version", change.get("childVersion", 0))
        if number <= value["version"]:
            return  # repeated
        value["version"] = number
        value["lastModified"] = change.get("lastModified", "")
        if "childVersion" not in change:
            apply_change(value["data"], change)
        elif "value" in change:
            id_ = change["resource"]
            order = value["childrenObjects"].get(id_, {}).get("order", number)
            child = {"resource": id_, "source": change["childSource"], "value": change["value"]}
            value["childrenObjects"][id_] = {**child, "order": order}
        else:
            value["childrenObjects"].pop(change["resource"], None)
        self._touch(url)

    def _touch(self, url: str) -> None:
        if self._storage is None:
            return
        self._unwritten.add(url)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_AFTER, self._flush)

    def _flush(self) -> None:
        self._timer = None
        for url in self._unwritten:
            self._write(f"{self._key}.{url}", self._all[url])
        self._unwritten.clear()

    def _read(self, key: str) -> Any:
        try:
            text = self._storage.get(key) if self._storage is not None else None
            return json.loads(text) if text else None
        except Exception as error:
            self._bus.report("storage.failed", f"{key} cannot be read: {error}", None, error)
            return None

    def _write(self, key: str, value: Any) -> None:
        if self._storage is None:
            return
        try:
            if value is None:
                self._storage.pop(key, None)
            else:
                self._storage[key] = json.dumps(value)
        except Exception as error:
            self._bus.report("storage.failed", f"{key} cannot be written: {error}", None, error)
