"""The workbench: a script that need not be approved, run against recorded requests. Blocks.

It runs in a sandbox of its own and reaches nothing: its HTTP requests are answered from what was
recorded, secrets have no value, and what it keeps is forgotten.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from msgnode.core.errors import Conflict, NodeError, TooMany
from msgnode.net.http import NotAllowed
from msgnode.sandbox.pipe import Happened, KeptWanted
from msgnode.sandbox.process import SandboxLimits

from .script import Ended, Script, ScriptFailed
from .store import Version, digest_of

MAX_CALLS = 20
CALL_SECONDS = 5.0
AT_ONCE = 2
_running = threading.BoundedSemaphore(AT_ONCE)

EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "domain-registry": [
        {"method": "find", "argument": {"kind": "hyperty", "user": "user://example.org/alice"}},
        {"method": "find", "argument": {"kind": "hyperty", "url": "hyperty://example.org/1"}},
    ],
    "global-registry": [{"method": "get", "argument": {"guid": "a-guid"}}],
    "identity": [
        {"method": "keys", "argument": {}},
        {"method": "loginUrl", "argument": {"contents": "1,2,3"}},
    ],
    "legacy": [
        {"method": "start", "argument": {"domain": "sip.example", "accounts": ["guest001"]}},
    ],
    "qos": [
        {"method": "inquire", "argument": {"customer": "csp1"}},
        {"method": "reserve", "argument": {"class": "video", "customer": "csp1"}},
    ],
}
"""Calls to try, by port."""


class Recorded:
    """The World of a script that is only tried.

    `answers` are by method and URL: an object with `status`, `type` and `body`, or the body.
    """

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.requests: list[dict[str, Any]] = []
        self.news: list[tuple[str, str]] = []
        self.events: list[dict[str, Any]] = []
        self._answers = answers
        self._kept: dict[str, tuple[str, int]] = {}

    async def request(
        self, method: str, url: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, str, bytes]:
        """The recorded answer."""
        told: dict[str, Any] = {"request": f"{method} {url}", "headers": headers}
        self.requests.append({**told, "body": (body or b"").decode(errors="replace")[:2_000]})
        found = self._answers.get(f"{method} {url}")
        if found is None:
            raise NotAllowed("no answer to it was recorded")
        if not isinstance(found, dict) or "body" not in found:
            found = {"body": found}
        said = found["body"]
        content = said.encode() if isinstance(said, str) else msgspec.json.encode(said)
        return int(found.get("status", 200)), str(found.get("type", "application/json")), content

    async def keep(self, wanted: KeptWanted) -> Any:
        """Keep it until the end of the trial."""
        value, version = self._kept.get(wanted.key, ("", 0))
        if wanted.action == "list":
            return [key for key in self._kept if key.startswith(wanted.key)]
        if wanted.action == "get":
            return {"value": value, "version": version} if version else None
        if wanted.version not in (None, version):
            raise Conflict("The entry has another version.")
        self._kept.pop(wanted.key, None)
        if wanted.action == "delete":
            return None
        self._kept[wanted.key] = (wanted.value, version + 1)
        return {"version": version + 1}

    async def hear(self, said: Happened) -> Any:
        """Note it; nobody is there."""
        told = {"event": said.event, "value": msgspec.json.decode(said.value)}
        self.events = [*self.events[-99:], told]
        return {"code": 404}

    def tell(self, entries: list[tuple[str, str]]) -> None:
        """Note news."""
        self.news += entries


def run(
    port: str,
    parts: Mapping[str, Any],
    calls: Sequence[Mapping[str, Any]],
    answers: Mapping[str, Any],
    limits: SandboxLimits,
) -> dict[str, Any]:
    """Try a script.

    Args:
        port: that it is for.
        parts: of its version, checked.
        calls: up to MAX_CALLS, each with `method` and `argument`; one after another.
        answers: recorded answers to its requests.
        limits: of its sandbox.

    Returns:
        `calls` with `value` or `code` and `error`, and `ms`; its `requests` and those that were
        `refused`; `fault`, why it could not be loaded; `loaded_ms`, `memory_bytes`, `log`, `news`,
        `events`.

    Raises:
        TooMany: others are being tried.
    """
    if not _running.acquire(blocking=False):
        raise TooMany(f"{AT_ONCE} scripts are being tried already; try again in a moment.")
    try:
        return asyncio.run(_run(port, parts, calls, answers, limits))
    finally:
        _running.release()


async def _run(
    port: str,
    parts: Mapping[str, Any],
    calls: Sequence[Mapping[str, Any]],
    answers: Mapping[str, Any],
    limits: SandboxLimits,
) -> dict[str, Any]:
    world = Recorded(answers)
    hidden = dict.fromkeys(parts["secrets"], "(secret)")
    version = Version(
        digest_of(parts), parts["source"], parts["configuration"], frozenset(parts["origins"]),
        parts["secrets"], hidden,
    )  # fmt: skip
    script = Script(port, version, world, limits)
    told: dict[str, Any] = {"fault": "", "calls": [], "loaded_ms": 0.0, "methods": []}
    began = time.monotonic()
    try:
        await script.start()
        told["loaded_ms"] = _milliseconds(began)
        told["methods"] = sorted(script.methods)
        told["calls"] = [await _called(script, each) for each in calls[:MAX_CALLS]]
    except (OSError, ScriptFailed) as why:
        told["fault"] = str(why)[:300]
    script.kill("it was only tried")
    memory = script.sandbox.memory_bytes
    await script.sandbox.ended()
    return {
        **told, "memory_bytes": memory, "requests": world.requests, "refused": script.refusals,
        "log": list(script.sandbox.logs), "news": world.news,
        "events": world.events,
    }  # fmt: skip


async def _called(script: Script, call: Mapping[str, Any]) -> dict[str, Any]:
    method, argument = str(call.get("method", "")), call.get("argument")
    told: dict[str, Any] = {"method": method, "argument": argument}
    began = time.monotonic()
    try:
        if method not in script.methods:
            raise ScriptFailed(f"it has no method {method[:32]}")
        context = {"deadline": int((time.time() + CALL_SECONDS) * 1000), "owner": "trial"}
        async with asyncio.timeout(CALL_SECONDS):
            told["value"] = msgspec.json.decode(await script.call(method, argument, context))
    except TimeoutError:
        told |= {"code": 504, "error": f"it does not answer within {CALL_SECONDS:g} s"}
    except (Ended, ScriptFailed) as fault:
        told |= {"code": 503 if isinstance(fault, Ended) else 502, "error": str(fault)}
    except NodeError as refusal:
        told |= {"code": refusal.code, "error": refusal.description}
    return {**told, "ms": _milliseconds(began)}


def _milliseconds(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 2)
