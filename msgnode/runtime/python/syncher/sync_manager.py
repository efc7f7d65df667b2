"""The sync manager, `<runtime URL>/sm`: claims addresses, subscribes, and asks reporters who may.

| message to it, from a hyperty here            |                                              |
|-----------------------------------------------|----------------------------------------------|
| `create {schema, value}`                      | a new object: its address, claimed           |
| `create {resource, authorise: [X]}`           | an invitation for X; its answer is X's       |
| `create`, `subscribe` with `resume: true`     | what the hyperty reports, observes           |
| `subscribe {resource}`                        | 100, then 200 with the value, or a refusal   |
| `unsubscribe {resource}`, `delete {resource}` | the end of either                            |
| `execute {method: "claim"}`                   | have the home node deliver what is for it    |

Rules
- It serves hyperties of this runtime alone; an object's reporter is who created it.
- Listeners stand before subscriptions are made, so that nothing falls between the two.
- What a node held for a stub that was started anew is subscribed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from dataclasses import dataclass, field
from typing import Any

from msgnode.core import addresses
from msgnode.runtime.python.listeners import Listening
from msgnode.runtime.python.message_bus import MessageBus, Publishing
from msgnode.runtime.python.messages import Message, body_of

from .errors import SyncError
from .node_subscriptions import NodeSubscriptions
from .objects import is_meant, parts_of, reported_parts_of, scheme_for
from .registrations import Registrations
from .stored_objects import Storage, StoredObjects
from .stored_subscriptions import StoredSubscriptions, Subscription
from .talk import Body, InTime, ask, ask_until_answered, respond

MAX_OBJECTS = 10_000


@dataclass(slots=True)
class _Reported:
    hyperty: str
    schema: str
    value: Body
    observers: dict[str, str] = field(default_factory=dict)  # hyperty -> who said so for it
    items: list[Listening | Publishing] = field(default_factory=list)

    @property
    def is_routed(self) -> bool:
        return self.value.get("domain_routing") is not False


@dataclass(slots=True)
class _Observed:
    is_at_node: bool
    items: list[Listening | Publishing]
    hyperties: dict[str, str] = field(default_factory=dict)  # hyperty -> schema
    ready: asyncio.Task[None] | None = None


class SyncManager:
    """That of one runtime; needs the running event loop."""

    def __init__(self, bus: MessageBus, domain: str, storage: Storage | None = None) -> None:
        self._bus = bus
        self._domain = domain
        self._url = f"{bus.runtime_url}/sm"
        self._reported: dict[str, _Reported] = {}
        self._observed: dict[str, _Observed] = {}
        self._node = NodeSubscriptions(bus, self._url)
        self._stored = StoredObjects(bus, domain, storage)
        self._kept = StoredSubscriptions(bus, domain, storage)
        self._judging: set[tuple[str, str]] = set()  # requests that a reporter decides about
        self.registrations = Registrations(bus, domain)
        self._started: set[str] = set()  # stubs that were live
        self._in_time = InTime(bus)
        bus.add_listener(self._url, self._asked)
        bus.add_listener(f"{bus.runtime_url}/status", self._status)

    async def claim(self, hyperty: str) -> None:
        """Have the home node deliver here what is for a hyperty from now on. Raises SyncError."""
        await self._node.claim(hyperty)

    async def unclaim(self, hyperty: str) -> None:
        """It need not do so any more."""
        self._node.forget(hyperty)
        with contextlib.suppress(SyncError):  # it ends with the session
            await self._node.ask("unsubscribe", hyperty, [hyperty], hyperty)

    def close(self) -> None:
        """Do nothing by itself any more. What is reported and not stored has ended."""
        for url, reported in self._reported.items():
            if not self._stored.has(url):
                self._tell_end(url, reported.hyperty)
        self.registrations.close()
        self._stored.close()
        self._kept.close()
        self._in_time.close()
        self._node.close()

    # --- what hyperties ask -----------------------------------------------------------------------

    def _asked(self, message: Message) -> None:
        if message["type"] != "response":
            self._in_time.answer(message, lambda: self._answer(message))

    async def _answer(self, message: Message) -> Body:
        kind, hyperty, asked = message["type"], message["from"], body_of(message)
        if asked.get("via"):
            raise SyncError(403, "The sync manager serves the hyperties of its own runtime.")
        url = asked.get("resource")
        match kind:
            case "create" if asked.get("resume"):
                return await self._resume(hyperty, asked)
            case "create" if asked.get("authorise"):
                return await self._invite(hyperty, asked)
            case "create":
                return await self._create(hyperty, asked)
            case "subscribe" if asked.get("resume"):
                return self._observed_by(hyperty, asked)
            case "subscribe":
                return await self._subscribe(message, asked)
            case "unsubscribe":
                if not asked.get("keep"):
                    self._kept.forget(hyperty, str(url))
                await self._leave(hyperty, str(url))
                return {"code": 200}
            case "delete":
                await self._delete(hyperty, str(url))
                return {"code": 200}
            case "execute" if asked.get("method") == "claim":
                await self._node.claim(hyperty)
                return {"code": 200}
        raise SyncError(400, f"The sync manager does not know {kind}.")

    async def _create(self, hyperty: str, asked: Body) -> Body:
        value = asked.get("value")
        if not isinstance(value, dict):
            raise SyncError(400, "An object is created with a `value`.")
        if len(self._reported) >= MAX_OBJECTS:
            raise SyncError(503, f"A runtime reports at most {MAX_OBJECTS} objects.")
        schema = str(asked.get("schema") or "")
        wanted = value.pop("resource", None)
        new = f"{scheme_for(asked.get('scheme'), schema)}://{self._domain}/{uuid.uuid4()}"
        url = new if wanted is None else self._wanted(hyperty, wanted)
        await self._report(url, _Reported(hyperty, schema, value))
        if asked.get("store"):
            self._stored.keep(url, hyperty, schema, value)
        return {"code": 200, "resource": url, "childrenResources": ["children"]}

    def _wanted(self, hyperty: str, wanted: Any) -> str:
        other = self._reported.get(wanted) if isinstance(wanted, str) else None
        if other is not None and other.hyperty != hyperty:
            raise SyncError(403, f"{wanted} is reported by another hyperty.")
        if other is not None:
            raise SyncError(409, f"{wanted} is reported already: resume it.")
        parsed = addresses.parse(wanted) if isinstance(wanted, str) else None
        if parsed is None or parsed.home != self._domain or not parsed.path.strip("/"):
            raise SyncError(400, f"{wanted!r:.100} is no address of {self._domain}.")
        return str(wanted)

    async def _report(self, url: str, reported: _Reported) -> None:
        """Have an object's addresses lead here."""
        bus, hyperty = self._bus, reported.hyperty
        reported.items = [
            bus.add_listener(f"{url}/subscription", lambda message: self._applied(url, message)),
            bus.add_publish(f"{url}/changes")
            if reported.is_routed
            else bus.add_listener(f"{url}/changes", lambda _: None),
        ]
        self._reported[url] = reported
        if not reported.is_routed:
            return
        try:
            await self._node.claim(hyperty)
            await self._node.ask("subscribe", url, [url, f"{url}/subscription"], hyperty)
            await self._node.ask("subscribe", url, [f"{url}/children/"], hyperty)
        except SyncError as error:
            self._drop(url)
            raise SyncError(403 if error.code == 403 else 500, str(error)) from None
        if reported.value.get("domain_registration") is not False:
            self.registrations.add(url, hyperty, reported.schema, reported.value)

    async def _invite(self, hyperty: str, asked: Body) -> Body:
        url = str(asked.get("resource"))
        self._must_report(hyperty, url)
        invited = asked["authorise"]
        to = invited[0] if isinstance(invited, list) else invited
        kept = ("schema", "value", "p2p", "identity")
        body = {"source": hyperty, **{name: asked[name] for name in kept if name in asked}}
        head = {"type": "create", "from": f"{url}/subscription", "to": to}
        return dict(await ask(self._bus, {**head, "body": body}))

    async def _resume(self, hyperty: str, criteria: Body) -> Body:
        found = []
        for url, stored in self._stored.of(hyperty).items():
            name = stored["value"].get("name")
            if not is_meant(criteria, url, stored["schema"], name):
                continue
            if url not in self._reported:
                observers = dict(stored.get("observers", []))
                again = _Reported(hyperty, stored["schema"], stored["value"], observers)
                await self._report(url, again)
                self._stored.begin_anew(url)
            found.append(url)
        if not found:
            raise SyncError(404, f"{hyperty} has reported no such object.")
        known = {url: list(map(list, self._reported[url].observers.items())) for url in found}
        value = [
            {**self._stored.get(url), "resource": url, "observers": known[url]} for url in found
        ]
        return {"code": 200, "value": value}

    def _observed_by(self, hyperty: str, criteria: Body) -> Body:
        value = [
            {"resource": each.url, "schema": each.schema}
            for each in self._kept.of(hyperty)
            if is_meant(criteria, each.url, each.schema, each.name)
        ]
        if not value:
            raise SyncError(404, f"{hyperty} has observed no such object.")
        return {"code": 200, "value": value}

    async def _subscribe(self, message: Message, asked: Body) -> Body:
        hyperty, url = message["from"], asked.get("resource")
        schema = str(asked.get("schema") or "")
        if not isinstance(url, str) or not addresses.parse(url).home:
            raise SyncError(400, f"{url!r:.100} is no address of an object.")
        is_at_node = asked.get("domain_subscription") is not False
        is_again = url in self._observed and hyperty in self._observed[url].hyperties
        try:
            await self._observe(hyperty, url, schema, is_at_node)
            accepted = {"childrenResources": ["children"], "schema": schema, "resource": url}
            respond(self._bus, message, {"code": 100, **accepted})
            who = {"subscriber": hyperty, "source": hyperty, "identity": asked.get("identity")}
            told = await self._ask_reporter("subscribe", url, who)
        except BaseException:
            if not is_again:  # else it goes on hearing, and asks once more
                await self._unhear(hyperty, url)
            raise
        value = told.get("value")
        known = value if isinstance(value, dict) else {}
        schema = schema or str(known.get("schema") or "")
        self._kept.keep(Subscription(hyperty, url, schema, str(known.get("name") or "")))
        return {"code": 200, "resource": url, "schema": schema, "value": value}

    async def _delete(self, hyperty: str, url: str) -> None:
        self._must_report(hyperty, url)
        self._tell_end(url, hyperty)
        self._stored.forget(url)
        reported = self._drop(url)
        self.registrations.remove(url)
        if reported.is_routed:
            still = self._bus.add_publish(f"{url}/changes")  # that it ends is on its way
            try:
                await self._node.ask("unsubscribe", url, reported_parts_of(url), hyperty)
            finally:
                still.remove()

    def _tell_end(self, url: str, hyperty: str) -> None:
        head = {"type": "delete", "from": f"{url}/subscription", "to": f"{url}/changes"}
        self._bus.post_message({**head, "body": {"source": hyperty}}, lambda _: None)

    def _must_report(self, hyperty: str, url: str) -> None:
        if url not in self._reported or self._reported[url].hyperty != hyperty:
            raise SyncError(404, f"{hyperty} does not report {url}.")

    def _drop(self, url: str) -> _Reported:
        reported = self._reported.pop(url)
        for item in reported.items:
            item.remove()
        return reported

    # --- objects that are reported here -----------------------------------------------------------

    def _applied(self, url: str, message: Message) -> None:
        """Somebody wants to subscribe, or does not any more."""
        key = message["from"], str(message.get("id"))
        if message["type"] == "response" or key in self._judging:
            return  # asked again, and not decided yet: that answer will do

        async def judged() -> Body:
            try:
                return await self._judged(url, message)
            finally:
                self._judging.discard(key)

        self._judging.add(key)
        self._in_time.answer(message, judged)

    async def _judged(self, url: str, message: Message) -> Body:
        kind, sender, body = message["type"], message["from"], body_of(message)
        if kind not in ("subscribe", "unsubscribe"):
            raise SyncError(400, "Here one subscribes or unsubscribes.")
        reported = self._reported[url]
        who = body.get("subscriber") or body.get("source") or sender
        if not isinstance(who, str) or addresses.parse(who).home != addresses.parse(sender).home:
            raise SyncError(403, f"{sender} cannot subscribe for {who!r:.100}.")
        if kind == "unsubscribe" and reported.observers.get(who) != sender:
            return {"code": 200}
        asked: Body = {"type": kind, "from": who, "to": url, "source": sender}
        head = {"type": "forward", "from": url, "to": reported.hyperty}
        asked["identity"] = body.get("identity")
        asked["isAsserted"] = body.get("assertedIdentity") is True
        told: Body = await ask(self._bus, {**head, "body": asked})
        reported.observers.pop(who, None)
        if kind == "subscribe":
            reported.observers[who] = sender
        self._stored.observed(url, reported.observers)
        return told

    # --- objects that are observed here -----------------------------------------------------------

    async def _observe(self, hyperty: str, url: str, schema: str, is_at_node: bool) -> None:
        observed = self._observed.get(url)
        if observed is None:
            if len(self._observed) >= MAX_OBJECTS:
                raise SyncError(503, f"A runtime observes at most {MAX_OBJECTS} objects.")
            children = f"{url}/children/"
            items: list[Listening | Publishing] = [
                self._bus.add_listener(children, lambda _: None),
                self._bus.add_publish(children),
            ]
            observed = _Observed(is_at_node and url not in self._reported, items)
            self._observed[url] = observed
        is_again = hyperty in observed.hyperties  # what the node had for it may be gone
        observed.hyperties.setdefault(hyperty, schema)
        if observed.is_at_node:
            await self._node.claim(hyperty)
            ready = observed.ready
            if ready is None or (ready.done() and (is_again or ready.exception())):
                subscribing = self._node.ask("subscribe", url, parts_of(url), hyperty)
                ready = observed.ready = asyncio.create_task(subscribing)
            await asyncio.shield(ready)

    async def _leave(self, hyperty: str, url: str) -> None:
        observed = self._observed.get(url)
        if observed is not None and hyperty in observed.hyperties:
            await self._unhear(hyperty, url)
            with contextlib.suppress(SyncError):  # he may be gone
                await self._ask_reporter("unsubscribe", url, {"source": hyperty})

    async def _unhear(self, hyperty: str, url: str) -> None:
        """One hyperty observes no more; with the last one the node's subscription goes."""
        observed = self._observed.get(url)
        if observed is None or observed.hyperties.pop(hyperty, None) is None or observed.hyperties:
            return
        del self._observed[url]
        for item in observed.items:
            item.remove()
        if observed.is_at_node:
            with contextlib.suppress(SyncError):
                await self._node.ask("unsubscribe", url, parts_of(url), hyperty)

    async def _ask_reporter(self, kind: str, url: str, body: Body) -> Body:
        head = {"type": kind, "from": self._url, "to": f"{url}/subscription"}
        return dict(await ask_until_answered(self._bus, {**head, "body": body}))

    def _status(self, message: Message) -> None:
        """A stub started anew has no session; at a gap a policy may have ended what one holds."""
        value, resource = (body_of(message).get(name) for name in ("value", "resource"))
        if value == "live":
            self._started.add(str(resource))
        if value != "gap" and (value != "created" or str(resource) not in self._started):
            return
        domain = addresses.parse(str(resource)).home
        if domain == self._domain:
            self._node.announce_hyperties()
            for url, reported in self._reported.items():
                if reported.is_routed:
                    self._node.announce(url, reported_parts_of(url), reported.hyperty)
        for url, observed in self._observed.items():
            if observed.is_at_node and addresses.parse(url).home == domain:
                self._node.announce(url, parts_of(url), next(iter(observed.hyperties)))
