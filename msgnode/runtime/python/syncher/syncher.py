"""Data objects for a hyperty: it reports its own and observes those of others.

    syncher = Syncher(runtime)
    room = await syncher.create({"topic": "Picnic"})  # others observe room.url
    room.data["topic"] = "Picnic on Sunday"

    copy = await syncher.subscribe(url)
    copy.on_change(lambda change: print(change["attribute"], change.get("value")))

It speaks to the sync manager of its runtime (`<runtime URL>/sm`), which speaks to nodes and to
other runtimes; changes, children and reads it exchanges itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol

from msgnode.core import addresses
from msgnode.runtime.python.arguments import check_address, check_text, wrong
from msgnode.runtime.python.listeners import Listening
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message, answer_to, body_of

from .changes import MAX_OBJECT, plain, size_of
from .errors import SyncError
from .objects import new_incarnation
from .observer import DataObjectObserver
from .reporter import DataObjectReporter, Judge
from .talk import Body, Decision, InTime, ask, decided, respond, value_of

_SUBSCRIPTION = "/subscription"


class HypertyRuntime(Protocol):
    """The runtime as its synchers need it."""

    url: str
    bus: MessageBus


class Syncher:
    """The data objects of one hyperty."""

    def __init__(self, runtime: HypertyRuntime, hyperty: str = "") -> None:
        """`hyperty` is the address that reports and observes; a new one if it is not given.

        Raises:
            TypeError: naming the argument.
        """
        if not isinstance(getattr(runtime, "url", None), str):
            raise wrong("runtime", "a Runtime", runtime)
        if hyperty != "":
            check_address("hyperty", hyperty)
        self._bus = runtime.bus
        self._home = addresses.parse(runtime.url).home
        self.hyperty = hyperty or f"hyperty://{self._home}/{uuid.uuid4()}"
        self._runtime_url = runtime.url
        self._sm = f"{runtime.url}/sm"
        self._reporters: dict[str, DataObjectReporter] = {}
        self._observers: dict[str, DataObjectObserver] = {}
        self._subscribing: dict[str, asyncio.Task[DataObjectObserver]] = {}
        self._is_closed = False
        self._listenings: dict[DataObjectReporter | DataObjectObserver, list[Listening]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._invited: Judge | None = None
        self._away: set[str] = set()  # domains whose stub has no connection
        self._in_time = InTime(self._bus)
        self._bus.endings.add(self.stop)
        self._own = [
            self._bus.add_listener(self.hyperty, self._received),
            self._bus.add_listener(f"{runtime.url}/status", self._status),
        ]

    async def create(
        self,
        data: Mapping[str, Any],
        name: str = "",
        schema: str = "",
        url: str = "",
        store: bool = False,
        scheme: str = "",
        **more: Any,
    ) -> DataObjectReporter:
        """Report a new object.

        Args:
            data: what JSON can say.
            name: shown to those who are invited.
            schema: URL of a schema; its name decides the scheme of the address.
            url: an address to use again.
            store: keep the object for resume().
            scheme: of the address, in the place of the schema's.
            more: `resources`, `domain_registration`, `domain_routing`, ….

        Raises:
            TypeError: the data holds something else.
            OverflowError: it is too large.
            SyncError: the object cannot be had; its `code` says more.
        """
        if not isinstance(data, Mapping):
            raise TypeError("A data object is a dict.")
        copy = plain(data)
        if size_of(copy) > MAX_OBJECT:
            raise OverflowError(f"A data object has at most {MAX_OBJECT} bytes.")
        value = {"resources": [], **more, "name": name, "schema": schema, "reporter": self.hyperty}
        value |= {"data": copy, "incarnation": new_incarnation()}
        value |= {"resource": url} if url else {}
        body = {"resume": False, "schema": schema, "store": store, "value": value}
        if scheme:
            body["scheme"] = scheme

        def made(told: Body) -> DataObjectReporter:
            stored = {"resource": told["resource"], "schema": schema, "value": value}
            return self._report(stored)

        reporter: DataObjectReporter = await self._ask("create", body, made)
        return reporter

    async def subscribe(
        self, url: str, schema: str = "", identity: Any = None
    ) -> DataObjectObserver:
        """Observe an object.

        Raises:
            ValueError: it is no address of an object.
            SyncError: 403 if the reporter refuses, 404 if there is no such object, ….
        """
        check_text("url", url)
        if not addresses.parse(url).home:
            raise ValueError(f"{url} is no address of an object.")
        if known := self._observers.get(url):
            if known.status == "disconnected":
                known.check()
            return known
        if url not in self._subscribing:
            task = asyncio.create_task(self._subscribe(url, schema, identity))
            self._subscribing[url] = task
            task.add_done_callback(lambda _: self._subscribing.pop(url, None))
        return await asyncio.shield(self._subscribing[url])

    async def on_invitation(self, judge: Judge) -> None:
        """Take invitations. Returns once the hyperty can be reached.

        Args:
            judge: `judge({"url", "schema", "name", "from", "identity"})` returns False or raises to
                decline. Who accepts subscribes then.
        """
        self._invited = judge
        await self._ask("execute", {"method": "claim"})

    async def resume(self, **criteria: str) -> list[DataObjectReporter]:
        """Go on with objects that this hyperty reported before.

        In this runtime or (created with `store`) before its last start.

        Args:
            criteria: `resource`, `schema`, `name`.
        """

        def made(told: Body) -> list[DataObjectReporter]:
            for each in told["value"]:
                if each["resource"] not in self._reporters:
                    self._report(each).announce()
            return [self._reporters[each["resource"]] for each in told["value"]]

        try:
            return list(await self._ask("create", {**criteria, "resume": True}, made))
        except SyncError as error:
            if error.code == 404:
                return []
            raise

    async def resume_observers(self, **criteria: str) -> list[DataObjectObserver]:
        """Observe again what this hyperty observed before.

        In this runtime or (with a storage) before its last start or crash. Objects that cannot be
        had are told to the error hook.
        """
        try:
            told = await self._ask("subscribe", {**criteria, "resume": True})
        except SyncError as error:
            if error.code == 404:
                return []
            raise
        again = [self.subscribe(each["resource"], each["schema"]) for each in told["value"]]
        resumed = await asyncio.gather(*again, return_exceptions=True)
        for each, result in zip(told["value"], resumed, strict=True):
            if isinstance(result, BaseException):
                text = f"{each['resource']} cannot be observed again: {result}"
                self._bus.report("data.not-resumed", text, None, result)
        return [each for each in resumed if isinstance(each, DataObjectObserver)]

    async def close(self) -> None:
        """Observe and report nothing any more; objects are not deleted."""
        self._is_closed = True
        for listening in self._own:
            listening.remove()
        for observer in self._observers.values():
            observer.ended()
        leaving = [self._end_observing(url, keep=True) for url in list(self._observers)]
        await asyncio.gather(*leaving, return_exceptions=True)
        for url in list(self._reporters):
            self._stop_reporting(url)
        self._bus.endings.discard(self.stop)
        self.stop()

    def stop(self) -> None:
        """End what runs by itself; nobody is told. The runtime closes."""
        self._in_time.close()
        for side in tuple(self._listenings):
            side.ended()
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()

    # --- objects ----------------------------------------------------------------------------------

    async def _ask(self, kind: str, body: Body, then: Callable[[Body], Any] | None = None) -> Any:
        message = {"type": kind, "from": self.hyperty, "to": self._sm, "body": body}
        return await ask(self._bus, message, then)

    def _report(self, stored: Body) -> DataObjectReporter:
        url = stored["resource"]

        async def end() -> None:
            await self._ask("delete", {"resource": url})
            self._stop_reporting(url)

        reporter = DataObjectReporter(self.hyperty, self._bus, self._sm, end, stored)
        self._reporters[url] = reporter
        self._listenings[reporter] = [
            self._bus.add_listener(url, reporter.received),
            self._bus.add_listener(f"{url}/children/", reporter.received_child),
        ]
        return reporter

    async def _subscribe(self, url: str, schema: str, identity: Any) -> DataObjectObserver:
        asked = {"resource": url, "schema": schema, "identity": identity}

        async def again() -> Body:
            return value_of(await self._ask("subscribe", asked))

        end = partial(self._end_observing, url)
        observer = DataObjectObserver(self.hyperty, self._bus, self._home, end, again, url)

        def changed(message: Message) -> None:
            observer.received(message)
            if message["type"] == "delete" and self._observers.get(url) is observer:
                self._ended(message, observer)

        listenings = [
            self._bus.add_listener(f"{url}/changes", changed),
            self._bus.add_listener(f"{url}/children/", observer.received_child),
        ]
        try:
            told = await self._ask("subscribe", asked)
            value = value_of(told)
            if value.get("responses"):
                value = await observer.read_whole()
            if self._is_closed:
                raise SyncError(503, "The syncher was closed meanwhile.")
            observer.start(value, str(told.get("schema") or ""))
        except BaseException as error:
            for listening in listenings:
                listening.remove()
            observer.ended()
            keep = not (isinstance(error, SyncError) and error.code in (403, 404))
            with contextlib.suppress(SyncError):
                await self._ask("unsubscribe", {"resource": url, "keep": keep})
            raise
        self._observers[url] = observer
        self._listenings[observer] = listenings
        return observer

    def _ended(self, message: Message, observer: DataObjectObserver) -> None:
        if observer.status == "ended":
            respond(self._bus, message, {"code": 200, "source": self.hyperty})
            self._start(self._end_observing(observer.url))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _leave(self, message: Message) -> None:
        """The runtime is about to close, and waits for the answer for a while."""
        await self.close()
        respond(self._bus, message, {"code": 200})

    async def _end_observing(self, url: str, keep: bool = False) -> None:
        self._remove_listeners(self._observers.pop(url, None))
        with contextlib.suppress(SyncError):
            await self._ask("unsubscribe", {"resource": url, "keep": keep})

    def _stop_reporting(self, url: str) -> None:
        if reporter := self._reporters.pop(url, None):
            self._remove_listeners(reporter)
            reporter.ended()

    def _remove_listeners(self, side: DataObjectReporter | DataObjectObserver | None) -> None:
        """Of one side of an object; a hyperty may have both."""
        if side is not None:
            for listening in self._listenings.pop(side, ()):
                listening.remove()

    # --- what comes -------------------------------------------------------------------------------

    def _received(self, message: Message) -> None:
        if message["type"] == "forward":
            # Only the runtime itself asks a reporter.
            reporter = self._reporters.get(message["from"])
            if reporter is None or body_of(message).get("via"):
                text = f"{message['from']} is not reported here."
                self._bus.post_message(answer_to(message, 404, text))
            else:
                reporter.forwarded(message)
        elif message["type"] == "create" and message["from"].endswith(_SUBSCRIPTION):
            self._in_time.answer(message, lambda: self._judged(message))
        elif message["type"] == "execute" and message["from"] == f"{self._runtime_url}/registry/":
            is_alone = self._bus.number_listening(self.hyperty) == 1  # else others use that time
            if is_alone and not body_of(message).get("via"):
                self._start(self._leave(message))

    def _judged(self, message: Message) -> Decision:
        """What becomes of an invitation."""
        if self._invited is None:
            raise SyncError(403, "This hyperty takes no invitations.")
        body = body_of(message)
        value = body.get("value")
        invitation = {
            "url": message["from"].removesuffix(_SUBSCRIPTION),
            "schema": body.get("schema"),
            "name": value.get("name") if isinstance(value, dict) else None,
            "from": body.get("source"),
            "identity": body.get("identity"),
        }

        def told(is_taken: bool | None) -> Body:
            if is_taken is False:
                raise SyncError(403, "The invitation was declined.")
            return {"code": 200}

        return decided(self._invited(invitation), told)

    def _status(self, message: Message) -> None:
        """A stub came back, or says that something was lost: both sides of objects make sure."""
        body = body_of(message)
        resource, value = body.get("resource"), body.get("value")
        if message["from"] != self._runtime_url or not isinstance(resource, str):
            return
        domain = addresses.parse(resource).home

        def is_of(url: str) -> bool:
            return domain in (self._home, addresses.parse(url).home)

        if value in ("disconnected", "failed"):
            self._away.add(domain)
            for url, observer in self._observers.items():
                if addresses.parse(url).home == domain:
                    observer.disconnected()
        elif value == "gap" or (value == "live" and domain in self._away):
            self._away.discard(domain)
            for url, reporter in self._reporters.items():
                if is_of(url):
                    reporter.repeat()
            for url, observer in self._observers.items():
                if is_of(url):
                    observer.check()
