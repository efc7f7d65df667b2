"""What the steps of a case of data objects do: runtimes share objects over a node that loses and
lies. js/tests/syncher-play.mjs does the same."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fake_clock import FakeClock, settled
from peers import FakeNode, Peer

from msgnode.runtime.python.messages import answer_to, body_of
from msgnode.runtime.python.syncher import reporter
from msgnode.runtime.python.syncher.errors import SyncError
from msgnode.runtime.python.syncher.syncher import Syncher

Message = dict[str, Any]

CHANGES: dict[str, Callable[..., object]] = {
    "set": lambda part, name, value: part.__setitem__(name, value),
    "unset": lambda part, name: part.__delitem__(name),
    "push": lambda part, name, value: part[name].append(value),
    "pop": lambda part, name: part[name].pop(),
    "reverse": lambda part, name: part[name].reverse(),
}


def like(expected: Message, message: Message) -> Message:
    """The fields of a message, and of its body and value, that an expectation names."""
    body = message.get("body") or {}
    value = body.get("value") if isinstance(body, dict) else None
    flat = {**(value if isinstance(value, dict) else {}), **body, **message}
    return {key: flat.get(key) for key in expected}


class Play:
    """Runtimes, hyperties, objects and copies by name; `o` is the object that is spoken of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, retries_late: bool = False) -> None:
        """`retries_late`: the next try of what failed for 9 s is too late."""
        self.node = FakeNode()
        self._clock = FakeClock()
        self._monkeypatch = monkeypatch
        self._patience = 5.0 if retries_late else 300.0  # seconds
        self._peers: dict[str, Peer] = {}
        self._synchers: dict[str, tuple[Peer, str, Any]] = {}
        self._objects: dict[str, Any] = {}
        self._copies: dict[str, Any] = {}
        self._told: dict[int, dict[str, list[Any]]] = {}
        self._storages: dict[str, dict[str, str]] = {}
        self._begun: dict[str, asyncio.Future[Any]] = {}
        self._asked: list[Message] = []
        self._invited: list[Message] = []
        self._held: list[Message] = []
        self._decision: asyncio.Future[Any]
        for name in ("alice", "bob"):
            self.do_peer(name)

    def _named(self, value: Any) -> Any:
        """$bob is Bob's hyperty, $o an object, @bob his runtime; {"$x": n} is a long text."""
        if isinstance(value, str):
            return re.sub(r"([$@])([a-z]+)", self._address, value)
        if isinstance(value, list):
            return [self._named(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "$x" in value:
            return "x" * value["$x"]
        if "$many" in value:
            return {str(n): {"value": n} for n in range(value["$many"])}
        return {key: self._named(each) for key, each in value.items()}

    def _address(self, found: re.Match[str]) -> str:
        sign, name = found.groups()
        if sign == "@":
            return self._peers[name].url
        return self._objects[name].url if name in self._objects else self._synchers[name][1]

    async def steps(self, steps: list[list[Any]]) -> None:
        """Do them in turn."""
        for step in steps:
            await self._act(*step)

    async def _act(self, act: str, *words: Any) -> Any:
        do = getattr(self, "do_" + re.sub("([A-Z])", r"_\1", act).lower())
        done = do(*map(self._named, words))
        return await done if isinstance(done, Awaitable) else done

    def stop(self) -> None:
        """The end of all runtimes."""
        for peer in self.node.peers:
            peer.close()

    # --- time -------------------------------------------------------------------------------------

    async def _soon(self, found: Callable[[], Any], expected: Any) -> None:
        """Let time pass until it is so, or for as long as the case may wait."""
        await settled()
        left = self._patience
        while left > 0 and found() != expected:
            await self._clock.turn(0.5)
            left -= 0.5
        assert found() == expected

    do_settle = staticmethod(settled)

    async def do_repeat(self, times: int, *steps: list[Any]) -> None:
        """# counts from 0, also behind digits and in texts."""
        text = json.dumps(steps)
        for n in range(times):
            numbered = re.sub(r'"(\d*)#"', rf"\g<1>{n}", text).replace("#", str(n))
            await self.steps(json.loads(numbered))

    async def do_wait(self, milliseconds: float) -> None:
        await self._clock.turn(milliseconds / 1000)

    async def do_tick(self) -> None:
        await asyncio.sleep(0)

    def do_start(self, name: str, *step: Any) -> None:
        self._begun[name] = asyncio.ensure_future(self._act(*step))

    async def do_end(self, name: str) -> None:
        await self._soon(self._begun[name].done, True)
        await self._begun[name]

    async def do_fails(self, code: int, *step: Any) -> None:
        self.do_start("failing", *step)
        with pytest.raises(SyncError) as error:
            await self.do_end("failing")
        assert error.value.code == code

    # --- who there is -----------------------------------------------------------------------------

    def do_peer(self, name: str, storage: str = "") -> None:
        kept = self._storages.setdefault(storage, {}) if storage else None
        peer = self._peers[name] = self.node.peer(kept)
        self._synchers[name] = peer, peer.hyperty, peer.syncher

    def do_syncher(self, name: str, of: str, hyperty: str) -> None:
        peer = self._peers[of]
        self._synchers[name] = peer, hyperty, Syncher(peer, hyperty)

    async def do_close(self, name: str) -> None:
        await settled()
        self._peers[name].close()
        await settled()
        if self.node.peers[-1] is self._peers[name]:
            self.node.peers.pop()  # the next one has its addresses

    async def do_kill(self, name: str) -> None:
        """Its runtime says nothing any more, and the node notices."""
        self.node.copies = lambda _: 0
        await self.do_close(name)
        self.do_pass()
        self.do_forget(name)

    def do_keep(self, storage: str, as_: str) -> None:
        self._storages[as_] = dict(self._storages[storage])

    async def do_leave(self, name: str) -> None:
        await self._synchers[name][2].close()

    async def do_say(self, name: str, *words: str) -> None:
        for word in words:
            self._peers[name].say(word)
            await settled()

    def do_listen(self, name: str, of: str, hyperty: str) -> None:
        """A hyperty that never answers."""
        peer = self._peers[of]
        self._synchers[name] = peer, hyperty, None
        peer.bus.add_listener(hyperty, lambda _: None)
        self.node.subscribers[hyperty] = [peer]

    def do_clock(self, now: str) -> None:
        if now != "later":
            self._monkeypatch.setattr(reporter, "_now", lambda: now)
        time.sleep(0.01)  # changes are dated to the millisecond

    # --- objects ----------------------------------------------------------------------------------

    def _side(self, who: str) -> Any:
        return self._objects.get(who) or self._copies[who]

    def _watch(self, side: Any, *, is_copy: bool) -> None:
        told: dict[str, list[Any]] = {"changes": [], "children": [], "statuses": []}
        self._told[id(side)] = told
        side.on_child(lambda event: told["children"].append([event.type, event.value]))
        if is_copy:
            side.on_change(lambda change: told["changes"].append(change["value"]))
            side.on_status(told["statuses"].append)

    async def do_create(
        self, who: str, data: Any, options: Message | None = None, as_: str = "o"
    ) -> None:
        self._objects[as_] = await self._synchers[who][2].create(data, **(options or {}))
        self._watch(self._objects[as_], is_copy=False)

    async def do_subscribe(self, who: str, object_: str = "o", as_: str = "") -> None:
        url = self._objects[object_].url if object_ in self._objects else object_
        copy = self._copies[as_ or who] = await self._synchers[who][2].subscribe(url)
        self._watch(copy, is_copy=True)

    async def do_again(self, who: str, is_one: bool) -> None:  # noqa: FBT001 (as in the case)
        copy = await self._synchers[who][2].subscribe(self._objects["o"].url)
        assert (copy is self._copies[who]) == is_one

    async def do_resume(self, who: str, hyperty: str, criteria: Message | None = None) -> None:
        syncher = Syncher(self._peers[who], hyperty)
        (self._objects["o"],) = await syncher.resume(**(criteria or {}))

    async def do_resume_nothing(self, who: str) -> None:
        assert await self._synchers[who][2].resume() == []

    async def do_resume_observers(self, who: str, *urls: str) -> None:
        copies = await self._synchers[who][2].resume_observers()
        assert [each.url for each in copies] == [*urls]
        if copies:
            self._copies[who] = copies[0]

    async def do_unsubscribe(self, who: str) -> None:
        await self._copies[who].unsubscribe()

    async def do_delete(self, object_: str = "o") -> None:
        await self._objects[object_].delete()

    async def do_add(self, who: str, value: Any, id_: str = "") -> None:
        await self._side(who).add_child(value, id_)

    async def do_update(self, who: str, id_: str, value: Any) -> None:
        await self._side(who).update_child(id_, value)

    async def do_remove(self, who: str, id_: str) -> None:
        await self._side(who).remove_child(id_)

    def _change(self, way: str, path: str, *value: Any) -> None:
        part = self._objects["o"].data
        *names, last = path.split(".")
        for name in names:
            part = part[name]
        CHANGES[way](part, last, *value)

    def do_set(self, path: str, value: Any) -> None:
        self._change("set", path, value)

    def do_push(self, path: str, value: Any) -> None:
        self._change("push", path, value)

    def do_fixed(self, *change: Any) -> None:
        with pytest.raises(TypeError, match="has ended"):
            self._change(*change)

    def do_break(self, who: str) -> None:
        def broken(_: Any) -> None:
            raise RuntimeError("mine")

        self._copies[who].on_change(broken)

    # --- decisions --------------------------------------------------------------------------------

    def _verdict(self, verdict: Any) -> Any:
        if verdict == "later":
            self._decision = asyncio.get_running_loop().create_future()
            return self._decision
        return verdict

    def do_admit(self, verdict: Any) -> None:
        self._asked = []

        def judge(who: Message) -> Any:
            self._asked.append(who)
            if verdict == "not asserted":
                return who["isAsserted"] is False
            return self._verdict(verdict)

        self._objects["o"].on_subscription(judge)

    async def do_judge(self, who: str, verdict: Any) -> None:
        async def judge(invitation: Message) -> Any:
            self._invited.append(invitation)
            return await self._verdict(verdict) if verdict == "later" else verdict

        await self._synchers[who][2].on_invitation(judge)

    def do_decide(self, verdict: Any) -> None:
        self._decision.set_result(verdict)

    async def do_invite(self, who: str, code: int) -> None:
        hyperty = self._synchers[who][1]
        inviting = asyncio.ensure_future(self._objects["o"].invite(hyperty))
        await self._soon(inviting.done, True)
        assert inviting.result() == {hyperty: code}

    def do_invited(self, _: str, expected: Message) -> None:
        assert like(expected, self._invited[-1]) == expected

    def do_asked(self, *expected: Message) -> None:
        found = [like(like_, each) for each, like_ in zip(self._asked, expected, strict=True)]
        assert found == [*expected]

    async def do_ask(
        self,
        who: str,
        code: int | None,
        kind: str,
        to: str,
        body: Message | None = None,
        sender: str = "",
    ) -> None:
        peer, hyperty, _ = self._synchers[who]
        asked = {"type": kind, "from": sender or hyperty, "to": to, "body": body or {}}
        answer = await peer.bus.request(asked)
        assert code in (None, body_of(answer).get("code"))

    # --- the node ---------------------------------------------------------------------------------

    def _lose(self, matches: tuple[Message, ...], times: float, lost: list[Message]) -> None:
        left = times

        def copies(message: Message) -> int:
            nonlocal left
            if left < 1 or not any(like(each, message) == each for each in matches):
                return 1
            left -= 1
            lost.append(message)
            return 0

        self.node.copies = copies

    def do_lose(self, *matches: Message) -> None:
        self._lose(matches, float("inf"), [])

    def do_lose_once(self, match: Message) -> None:
        self._lose((match,), 1, [])

    def do_hold(self, match: Message) -> None:
        self._held = []
        self._lose((match,), float("inf"), self._held)

    def do_pass(self) -> None:
        self.node.copies = lambda _: 1
        vars(self.node).pop("received", None)

    def do_deliver(self, who: str, *numbers: int) -> None:
        peer = self._peers[who]
        for each in numbers:
            peer.bus.receive(self._held[each], peer.stub)

    def do_refuse(self, who: str, match: Message) -> None:
        """The node answers 403 to some of what a runtime sends."""
        takes, refused = self.node.received, self._peers[who]

        def received(peer: Peer, message: Message) -> None:
            if peer is refused and like(match, message) == match:
                peer.bus.receive(answer_to(message, 403, "It is forbidden."), peer.stub)
            else:
                takes(peer, message)

        self.node.received = received  # type: ignore[method-assign]

    def do_lie(self, value: Any) -> None:
        """Subscriptions are answered with another value."""
        vars(self.node).pop("hand", None)
        hand = self.node.hand

        def lie(peer: Peer, message: Message) -> None:
            is_answer = message["type"] == "response" and message["from"].endswith("/subscription")
            body = {"code": 200, "value": value}
            hand(peer, {**message, "body": body} if is_answer else message)

        if value is not None:
            self.node.hand = lie  # type: ignore[method-assign]

    def do_tell(
        self, who: str, version: Any, change: Message | None = None, head: Message | None = None
    ) -> None:
        """What a reporter's change number so much would be, with other fields."""
        peer, url = self._peers[who], self._objects["o"].url
        change = {"attribute": "title", "value": f"t{version}"} if change is None else change
        message = {
            "id": 1000,
            "type": "update",
            "from": url,
            "to": f"{url}/changes",
            **(head or {}),
        }
        via = message.pop("via", peer.stub)
        peer.bus.receive({**message, "body": {"version": version, **change}}, via)

    def do_forget(self, who: str, address: str = "") -> None:
        for each, known in self.node.subscribers.items():
            if self._peers[who] in known and address in ("", each):
                known.remove(self._peers[who])

    def do_forget_all(self) -> None:
        self.node.subscribers.clear()

    # --- what is so, at once ----------------------------------------------------------------------

    def do_begins(self, who: str, text: str) -> None:
        assert self._side(who).url.startswith(text)

    def do_changes(self, who: str, *values: Any) -> None:
        assert self._told[id(self._copies[who])]["changes"] == [*values]

    def do_told(self, who: str, *events: Any) -> None:
        assert self._told[id(self._side(who))]["children"] == [*events]

    def do_ids(self, who: str, *ids: str) -> None:
        assert [each.id for each in self._side(who).children] == [*ids]

    def do_children(self, who: str, *found: Any) -> None:
        assert [[each.value, each.source] for each in self._side(who).children] == [*found]

    def do_same_children(self, who: str) -> None:
        assert self._copies[who].children == self._objects["o"].children

    def do_counter(self, who: str, name: str, count: int) -> None:
        assert self._peers[who].bus.counters[name] == count

    def do_listening(self, who: str, address: str, count: int) -> None:
        assert self._peers[who].bus.number_listening(address) == count

    def do_stored(self, name: str, kept: Message) -> None:
        assert self._storages[name] == kept

    def do_unheard(self, url: str) -> None:
        assert url not in str(self.node.seen)

    def do_silent(self) -> None:
        assert self.node.seen == []

    def do_quiet(self) -> None:
        self.node.seen.clear()

    def do_subscribers(self, address: str, *names: str) -> None:
        assert self.node.subscribers.get(address, []) == [self._peers[each] for each in names]

    def do_sent(self, kind: str, to: str, *expected: Message) -> None:
        found = self.node.sent(kind, to)[-len(expected) :]
        assert [like(*pair) for pair in zip(expected, found, strict=True)] == [*expected]

    def do_times(self, kind: str, to: str, least: int, most: int) -> None:
        assert least <= len(self.node.sent(kind, to)) <= most

    def do_parts(self, who: str, least: int) -> None:
        match = {"type": "response", "from": self._objects["o"].url, "to": self._synchers[who][1]}
        parts = [each["body"] for each in self.node.seen if like(match, each) == match]
        assert parts[0]["code"] == 100
        assert parts[0]["value"]["responses"] == len(parts) >= least

    # --- what is so, soon -------------------------------------------------------------------------

    async def do_data(self, who: str, expected: Any) -> None:
        await self._soon(lambda: self._side(who).data, expected)

    async def do_version(self, who: str, expected: int) -> None:
        await self._soon(lambda: self._side(who).version, expected)

    async def do_status(self, who: str, expected: str) -> None:
        await self._soon(lambda: self._copies[who].status, expected)

    async def do_statuses(self, who: str, *expected: str) -> None:
        await self._soon(lambda: self._told[id(self._copies[who])]["statuses"], [*expected])

    async def do_addresses(self, *expected: str) -> None:
        await self._soon(lambda: sorted(self.node.subscribers), sorted(expected))

    async def do_observers(self, *names: str) -> None:
        hyperties = [self._synchers[each][1] for each in names]
        await self._soon(lambda: self._objects["o"].observers, hyperties)

    async def do_faults(self, who: str, *reasons: str) -> None:
        await self._soon(lambda: {each.reason for each in self._peers[who].faults}, {*reasons})

    async def do_same(self, who: str) -> None:
        made, copy = self._objects["o"], self._copies[who]
        await self._soon(lambda: (copy.data, copy.version), (made.data, made.version))
