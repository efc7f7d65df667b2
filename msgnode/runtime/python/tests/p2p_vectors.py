"""Vectors that the P2P parts of both languages answer to: tables, rules, frames, and what links do.

Usage: python p2p_vectors.py    writes ../../js/tests/p2p-vectors.json anew
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[4])]

from p2p_world import World  # noqa: E402

from msgnode.runtime.python.p2p import frames, states  # noqa: E402
from msgnode.runtime.python.p2p.link import Link  # noqa: E402
from msgnode.runtime.python.p2p.senders import is_for_node  # noqa: E402

FILE = Path(__file__).parents[2] / "js" / "tests" / "p2p-vectors.json"

WORDS = ["created", "create", "in-progress", "live", "disconnected", "failed", "ended", "", "Live"]
PAIRS = [
    ("runtime://a/1", "runtime://b/2"),
    ("runtime://b/2", "runtime://a/1"),
    ("hyperty-runtime://b/2", "runtime://a/1"),
    ("runtime://a/1", "hyperty-runtime://b/2"),
    ("runtime://a/1", "runtime://a/10"),
]
HANDLERS = [
    "runtime://b/2/p2phandler/g",
    "hyperty-runtime://b/2/p2phandler/g",
    "runtime://b/p2phandler/g",
    "comm://b/2/p2phandler/g",
    "runtime://b/2/p2phandler/",
    "runtime://b/2",
    "nonsense",
]
MESSAGES: list[dict[str, Any]] = [
    {"type": "create", "from": "hyperty://d/a", "to": "hyperty://d/b"},
    {"type": "create", "from": "hyperty://d/a", "to": "runtime://d/1/sm"},
    {"type": "update", "from": "comm://d/1", "to": "comm://d/1/changes"},
    {"type": "create", "from": "comm://d/1", "to": "comm://d/1/children/a"},
    {"type": "subscribe", "from": "hyperty://d/a", "to": "comm://d/1/subscription"},
    {"type": "read", "from": "runtime://d/1/registry/", "to": "domain://registry.d"},
    {"type": "read", "from": "hyperty://d/a", "to": "global://registry/x"},
    {"type": "read", "from": "hyperty://d/a", "to": "mn:/session"},
    {"type": "create", "from": "connection://d/1/subscription", "to": "runtime://d/1/p2phandler/x"},
    {"type": "execute", "from": "runtime://d/p2prequester/x", "to": "runtime://d/1/x"},
    {"type": "subscribe", "from": "runtime://d/1/sm", "to": "connection://d/1/subscription"},
    {"type": "create", "from": "hyperty://d/a", "to": "comm://d/p2phandler/t"},
    {
        "type": "create",
        "from": "hyperty://d/a",
        "to": "hyperty://d/b",
        "body": {"source": "runtime://d/2/p2phandler/x"},
    },
    {"type": "update", "from": "runtime://d/1/x", "to": "runtime://d/1/x/status"},
]
TEXTS = [
    '{"uuid":"000000000001","seq":1,"data":{"uuid":"000000000001","sendingTime":1,"dataSize":0,'
    '"textMessage":{"id":1}}}',
    '{"seq":2,"ack":7,"data":{"textMessage":{"id":2,"body":{}}}}',
    '{"data":{"textMessage":{"id":3}}}',
    '{"seq":3,"part":[0,2],"text":"{\\"id\\""}',
    '{"ack":12}',
    '{"fenceAck":2}',
    '{"ping":5}',
    '{"pong":"x"}',
    '{"bye":"idle"}',
    '{"bye":"whatever"}',
    "",
    "[]",
    "null",
    "nonsense",
    "{}",
    '{"seq":1}',
    '{"data":1}',
    '{"data":null}',
    '{"data":[]}',
    '{"data":{"textMessage":"x"},"seq":1}',
    '{"data":{"textMessage":{}},"seq":-1}',
    '{"data":{"textMessage":{}},"seq":true}',
    '{"data":{"textMessage":{}},"seq":1.5}',
    '{"part":[0],"seq":1,"text":""}',
    '{"part":[2,1],"seq":1,"text":""}',
    '{"part":[1,1],"seq":1,"text":""}',
    '{"part":[0,129],"seq":1,"text":""}',
    '{"part":[0,128],"seq":1,"text":""}',
    '{"part":[0,2],"text":"x"}',
    '{"part":{"0":0},"seq":1,"text":""}',
    '{"ack":-1}',
    '{"ack":"1"}',
    '{"fenceAck":true}',
    '{"fenceAck":9007199254740992}',
    '{"ping":{}}',
    '{"ping":true}',
    '{"ping":NaN}',
    '{"pong":[[]]}',
    '{"ping":"' + 64 * "x" + '"}',
    '{"ping":"' + 65 * "x" + '"}',
    '{"data":{"textMessage":{"n":Infinity}},"seq":1}',
]


def vectors() -> dict[str, Any]:
    """All of them, as the Python parts answer."""
    tables = {"requester": states.REQUESTER, "handler": states.HANDLER}
    return {
        "tables": {
            name: [
                [str(state), str(event), str(states.after(table, state, event))]
                for state in states.State
                for event in states.Event
            ]
            for name, table in tables.items()
        },
        "noReturn": sorted(states.NO_RETURN),
        "statuses": [[word, states.status_of(word)] for word in WORDS],
        "staysRequester": [[*pair, states.stays_requester(*pair)] for pair in PAIRS],
        "runtimeOfHandler": [[each, states.runtime_of_handler(each)] for each in HANDLERS],
        "isForNode": [[each, is_for_node(each)] for each in MESSAGES],
        "quarantine": _quarantine(),
        "redials": _redials(),
        "frames": [[text, _read(text)] for text in TEXTS],
        "written": [_written(length) for length in (10, 16_300, 16_400, 40_000)],
        "links": [{"name": name, "steps": record(seed, acts)} for name, seed, acts in TALKS],
    }


def _quarantine() -> list[float]:
    quarantine = states.Quarantine()
    return [quarantine.failed("b", 0.0) * 1000 for _ in range(8)]


def _redials() -> list[Any]:
    redials = states.Redials()
    asked = [(0.0, 0.5), (1.0, 0.0), (2.0, 1.0), (3.0, 0.5), (4.0, 0.25), (5.0, 1.0), (6.0, 0.5)]
    found = []
    for now, jitter in [*asked, (601.0, 0.5)]:
        delay = redials.next(now, jitter)
        found.append([now * 1000, jitter, None if delay is None else delay * 1000])
    return found


def _read(text: str) -> Any:
    try:
        frame = frames.read(text)
    except frames.BadFrame:
        return None
    match frame:
        case frames.Data():
            return {"kind": "data", "seq": frame.seq, "ack": frame.ack, "message": frame.message}
        case frames.Piece():
            head = {"kind": "piece", "seq": frame.seq, "ack": frame.ack}
            return {**head, "index": frame.index, "count": frame.count, "text": frame.text}
        case frames.Sign():
            return {"kind": frame.kind, "value": frame.value}


def _written(length: int) -> dict[str, Any]:
    message = {"id": 1, "text": "ä" * length}
    found = [json.loads(each) for each in frames.write(7, message, 3)]
    heads = [{key: each.get(key) for key in ("uuid", "seq", "ack", "part")} for each in found]
    return {
        "length": length,
        "heads": heads,
        "sizes": [len(each.get("text", "")) for each in found],
    }


# --- what links do --------------------------------------------------------------------------------

TALKS = [
    (
        "opened while both talk, then cut in silence",
        1,
        "say a 4, open, steps 6, say a 3, say b 3, settle, say a 40, say b 5, steps 8, cut, "
        "say a 3, settle",
    ),
    (
        "closed and opened again, with slow checks",
        2,
        "slow, open, settle, say a 5, say b 9, steps 7, close, say b 3, settle, open, say b 4, "
        "settle",
    ),
    (
        "an orderly end, repeats and swaps",
        3,
        "open, settle, say b 6, repeat, steps 5, say a 6, say b 6, swap, settle, open, settle, "
        "say a 2, bye a, settle",
    ),
    (
        "a fence that is never answered",
        4,
        "open, cut, say a 3, ticks 4, say a 2, ticks 8, settle",
    ),
    ("a message in pieces", 5, "open, settle, long a, long b, say a 2, settle"),
]


def plain(text: str) -> str:
    """A frame without what differs from one run to the next."""
    text = re.sub(r'"sendingTime":\d+', '"sendingTime":0', text)
    return re.sub(r'\{"(ping|pong)":\d+\}', r'{"\1":0}', text)


class Recorder:
    """A link whose calls are written down, with what it did of each."""

    def __init__(self, side: Any) -> None:
        self.steps: list[dict[str, Any]] = []
        self._link = Link(_Outlet(side, self))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._link, name)
        if name not in CALLS:
            return found

        def call(*words: Any) -> Any:
            step: dict[str, Any] = {
                "call": CALLS[name],
                "with": [_word(name, each) for each in words],
            }
            step["does"] = []
            self.steps.append(step)
            result = found(*words)
            if name in ("fence_asked", "resume_asked"):
                step["gives"] = result
            return result

        return call

    def does(self, *what: Any) -> None:
        self.steps[-1]["does"].append(list(what))


CALLS = {
    **{each: each for each in ("send", "frame", "opened", "bye", "lost", "pump", "answered")},
    **{each: each for each in ("proceed", "tick")},
    **{"fence_asked": "fenceAsked", "resume_asked": "resumeAsked"},
}


def _word(name: str, word: Any) -> Any:
    if isinstance(word, float):
        return round(word * 1000)
    return plain(word) if name == "frame" and isinstance(word, str) else word


class _Outlet:
    """What a link does, handed on and written down."""

    def __init__(self, side: Any, recorder: Recorder) -> None:
        self._side = side
        self._recorder = recorder

    def to_channel(self, frame: str | bytes) -> None:
        assert isinstance(frame, str)
        self._recorder.does("toChannel", plain(frame))
        self._side.to_channel(frame)

    def has_room(self) -> bool:
        found = bool(self._side.has_room())
        self._recorder.does("hasRoom", found)
        return found

    def to_node(self, message: dict[str, Any]) -> None:
        self._recorder.does("toNode", message["id"])
        self._side.to_node(message)

    def ask(self, method: str, params: dict[str, Any]) -> None:
        self._recorder.does("ask", method, params)
        self._side.ask(method, params)

    def take(self, message: dict[str, Any]) -> bool:
        found = bool(self._side.take(message))
        self._recorder.does("take", message["id"], found)
        return found

    def refuse(self, message: dict[str, Any], code: int, text: str) -> None:
        self._recorder.does("refuse", message["id"], code)
        self._side.refuse(message, code, text)

    def is_awaited(self, message: dict[str, Any]) -> bool:
        return False

    def close(self, reason: str) -> None:
        self._recorder.does("close", reason)
        self._side.close(reason)


def record(seed: int, acts: str) -> list[dict[str, Any]]:
    """What the link of side a does in a talk."""
    world = World(seed)
    recorder = Recorder(world.a)
    world.a.link = recorder  # type: ignore[assignment]
    said = {"a": 0, "b": 0}
    for act in acts.split(", "):
        match act.split():
            case ["say", who, count]:
                for _ in range(int(count)):
                    getattr(world, who).say(said[who])
                    said[who] += 1
            case ["long", who]:
                side = getattr(world, who)
                message = {"id": said[who], "type": "create", "text": "ab" * 9_000}
                side.link.send(message, 18_000, world.now)
                said[who] += 1
            case ["steps", count]:
                for _ in range(int(count)):
                    world.step()
            case ["ticks", count]:
                for _ in range(int(count)):
                    world.step_node()
                    world.tick()
            case ["bye", who]:
                getattr(world, who).link.bye("closing", world.now)
            case ["slow"]:
                world.a.is_slow = True
            case ["repeat"]:
                world.b.channel.extendleft(list(world.b.channel)[:1])
            case ["swap"]:
                world.b.channel.reverse()
            case [other]:
                getattr(world, other)()
    return recorder.steps


if __name__ == "__main__":
    found = vectors().items()
    lines = [f"{json.dumps(name)}: {json.dumps(each, ensure_ascii=False)}" for name, each in found]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
