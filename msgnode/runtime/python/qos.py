"""runtime.qos: what the network has, and reservations of relayed bandwidth for calls.

call = await runtime.qos.reserve(media_types=["audio", "video"])
call.on_ended(lambda end: ...)
ice = [RTCIceServer(**each) for each in call.configuration["iceServers"]]
await call.release()

It speaks as the runtime, to domain://qos.<domain>. A reservation is renewed until it is released or
the runtime closes, so that neither it nor its credential ends under a call. Where there is no
broker `ice_servers` gives what direct connections need, and does not fail.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .arguments import check_texts
from .listeners import Listening
from .message_bus import MessageBus
from .messages import Message, body_of, code_of

RENEW_SHARE = 0.8
"""Of what is left of a reservation."""
RENEW_MOST = 2_400.0
"""Seconds: a credential lives an hour at most."""
RETRY_LEAST = 2.0
CLOSE_SECONDS = 3.0


class QosRefused(Exception):
    """The broker refuses, or does not answer.

    Attributes:
        code: of its answer; 408 if there was none.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class End(NamedTuple):
    """How a reservation has ended: released, exceeded, lost or ended, and why."""

    status: str
    reason: str


OnEnded = Callable[[End], object]


class Reservation:
    """Bandwidth that is booked for the application.

    Attributes:
        id: at the broker.
        traffic_class: audio, video, …
        bitrate: in bits per second.
        expires: as ISO 8601, by the broker's clock.
        configuration: `iceServers` and `iceTransportPolicy` as RTCPeerConnection takes them; after
            a renewal it has the new credential.
        ended: how it has ended, None while it stands.
    """

    def __init__(
        self, qos: Qos, domain: str, value: Mapping[str, Any], seconds: int, keep: bool
    ) -> None:
        self.domain = domain
        self.ended: End | None = None
        self._qos = qos
        self._seconds = seconds
        self._keeps = keep
        self._listeners: list[OnEnded] = []
        self._left = RENEW_MOST
        self._take(value)
        self._keeping = asyncio.create_task(self._keep()) if keep else None

    def __repr__(self) -> str:
        return f"<Reservation {self.id} of {self.traffic_class}, {self.bitrate} bit/s>"

    def on_ended(self, listener: OnEnded) -> None:
        """Hear once that it has ended, at once if it has."""
        if self.ended is not None:
            listener(self.ended)
        else:
            self._listeners.append(listener)

    async def read(self) -> dict[str, Any]:
        """How it is at the broker: state, bytes received and sent. Raises QosRefused."""
        shown: dict[str, Any] = await self._qos.ask("read", self.domain, self._body())
        return shown

    async def renew(self, seconds: int = 0) -> None:
        """A later end and a new credential; what runs goes on. Raises QosRefused."""
        seconds = seconds or self._seconds
        body = {**self._body(), "value": {"seconds": seconds} if seconds else {}}
        self._take(await self._qos.ask("update", self.domain, body))

    async def release(self) -> None:
        """Give it back; what runs is ended. One that has ended already is no fault.

        Raises:
            QosRefused: the broker does not say that it has ended.
        """
        if self.ended is not None:
            return
        self._stop_keeping()
        try:
            await self._qos.ask("delete", self.domain, self._body())
        except QosRefused as refusal:
            if refusal.code != 404:
                raise
        self.end(End("released", "released"))

    def end(self, how: End) -> None:
        """For Qos: it has ended."""
        if self.ended is not None:
            return
        self.ended = how
        self._stop_keeping()
        self._qos.forget(self)
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            self._qos.call(listener, how)

    def _stop_keeping(self) -> None:
        self._keeps = False
        if self._keeping is not None and self._keeping is not asyncio.current_task():
            self._keeping.cancel()

    def _body(self) -> dict[str, Any]:
        return {"resource": f"/reservations/{self.id}"}

    def _take(self, value: Mapping[str, Any]) -> None:
        self.id = str(value["reservationId"])
        self.traffic_class = str(value.get("class", ""))
        self.bitrate = int(value.get("bitrate") or 0)
        self.expires = str(value.get("expires", ""))
        names = ("iceServers", "iceTransportPolicy")
        self.configuration = {name: value[name] for name in names if name in value}
        left = value.get("seconds")
        self._left = float(left) if isinstance(left, int | float) else RENEW_MOST

    async def _keep(self) -> None:
        """Renew, and while that fails try again until the end is reached."""
        pause = min(self._left * RENEW_SHARE, RENEW_MOST)
        while self._keeps:
            await asyncio.sleep(pause)
            self._left -= pause
            try:
                await self.renew()
                pause = min(self._left * RENEW_SHARE, RENEW_MOST)
            except QosRefused as refusal:
                if refusal.code in (403, 404):
                    self.end(End("ended", str(refusal)))
                elif self._left <= 0:
                    self.end(End("ended", "expired"))
                pause = max(RETRY_LEAST, self._left / 4)


@dataclass(frozen=True, slots=True)
class IceServers:
    """What a connection takes that is relayed only where it must be.

    Attributes:
        configuration: with `iceServers`, and "all" as `iceTransportPolicy`.
        reservation: behind it, None where none could be made.
        error: why not.
    """

    configuration: dict[str, Any]
    reservation: Reservation | None = None
    error: QosRefused | None = None

    async def release(self) -> None:
        """Give the reservation back, if there is one. Raises QosRefused."""
        if self.reservation is not None:
            await self.reservation.release()


class Qos:
    """A Runtime has one.

    Args:
        bus: of the runtime.
        domain: of the runtime.
    """

    def __init__(self, bus: MessageBus, domain: str) -> None:
        self._bus = bus
        self._domain = domain
        self._open: list[Reservation] = []
        self._heard: Listening | None = None
        self._is_closed = False

    async def inquire(
        self,
        media_types: Sequence[str] = (),
        csp_id: str = "",
        near: Sequence[str] = (),
        domain: str = "",
    ) -> dict[str, Any]:
        """What there is: classes with capacity, booked, free and servers; a customer's quota.

        Raises:
            QosRefused: see there.
        """
        criteria: dict[str, Any] = {}
        if media_types:
            criteria["mediaTypes"] = list(media_types)
        if csp_id:
            criteria["cspId"] = csp_id
        if near:
            criteria["near"] = list(near)
        body = {"resource": "/resources", "criteria": criteria}
        found: dict[str, Any] = await self.ask("read", domain or self._domain, body)
        return found

    async def reserve(
        self,
        media_types: Sequence[str] = (),
        *,
        seconds: int = 0,
        keep: bool = True,
        domain: str = "",
        **value: Any,
    ) -> Reservation:
        """Reserve for a call.

        Args:
            media_types: the class of each flow.
            seconds: how long, 0 for the broker's choice.
            keep: renew it until it is released or the runtime closes.
            domain: another domain's broker.
            value: what else the broker reads, by its names: flows, bitrate, cspId, clientName,
                sessionId, near; `class` as **{"class": "video"}.

        Raises:
            QosRefused: see there.
        """
        check_texts("media_types", media_types)
        if media_types:
            value["flows"] = [{"mediaType": each} for each in media_types]
        if seconds:
            value["seconds"] = seconds
        where = domain or self._domain
        body = {"resource": "/reservations", "value": value}
        answer = await self.ask("create", where, body)
        reservation = Reservation(self, where, answer, seconds, keep)
        if self._is_closed:
            await reservation.release()
            raise QosRefused(503, "The runtime was closed.")
        self._open.append(reservation)
        if self._heard is None:
            self._heard = self._bus.add_listener(self._bus.runtime_url, self._hear)
        return reservation

    async def reservations(self, domain: str = "") -> list[dict[str, Any]]:
        """Those of this runtime's user at the broker. Raises QosRefused."""
        body = {"resource": "/reservations"}
        found: list[dict[str, Any]] = await self.ask("read", domain or self._domain, body)
        return found

    async def ice_servers(
        self, media_types: Sequence[str] = ("data",), fallback: Sequence[Any] = (), **order: Any
    ) -> IceServers:
        """The configuration of a connection that is relayed only where it must be; never refused.

        Args:
            media_types: of the call: "audio", "video", "data".
            fallback: ICE servers to use besides, or alone where none can be reserved.
            order: as `reserve` takes it.
        """
        try:
            reservation = await self.reserve(media_types, **order)
        except QosRefused as refusal:
            self._bus.counters["qos.none"] += 1
            return IceServers(_all(fallback), error=refusal)
        servers = [*reservation.configuration.get("iceServers", ()), *fallback]
        return IceServers(_all(servers), reservation)

    async def close(self) -> None:
        """Release what there is, in 3 s; what cannot be told ends at the broker by itself."""
        self._is_closed = True
        mine = list(self._open)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*(each.release() for each in mine), return_exceptions=True)
        for each in mine:
            each.end(End("ended", "closed"))

    # --- for Reservation --------------------------------------------------------------------------

    async def ask(self, type_: str, domain: str, body: Mapping[str, Any]) -> Any:
        """The value of the broker's answer. Raises QosRefused."""
        to = f"domain://qos.{domain}"
        message = {"type": type_, "from": self._bus.runtime_url, "to": to, "body": dict(body)}
        try:
            answer = await self._bus.request(message)
        except TimeoutError:
            raise QosRefused(408, f"{to} does not answer.") from None
        code, said = code_of(answer), body_of(answer)
        if code >= 300:
            text = said.get("desc") or said.get("description") or f"{to} answered {code}."
            raise QosRefused(code, str(text))
        return said.get("value")

    def call(self, listener: OnEnded, how: End) -> None:
        """Tell a listener of the application; what it raises goes to the error hook."""
        try:
            listener(how)
        except Exception as error:
            self._bus.report("listener.failed", "A listener to an end raised.", None, error)

    def forget(self, reservation: Reservation) -> None:
        """It has ended."""
        self._open = [each for each in self._open if each is not reservation]
        if not self._open and self._heard is not None:
            self._heard.remove()
            self._heard = None

    def _hear(self, message: Message) -> None:
        """The broker tells of ends. Any other request finds nobody here, as without this."""
        body = body_of(message)
        is_status = message["type"] == "update" and body.get("attribute") == "status"
        for each in list(self._open) if is_status else ():
            is_its = message["from"] == f"domain://qos.{each.domain}"
            if is_its and body.get("resource") == f"/reservations/{each.id}":
                status = str(body.get("value"))
                each.end(End(status, str(body.get("reason") or status)))
                return
        url = self._bus.runtime_url
        if message["type"] != "response" and self._bus.number_listening(url) == 1:
            self._bus.undeliverable(message, 404, f"Nobody listens to {url} in this runtime.")


def _all(servers: Sequence[Any]) -> dict[str, Any]:
    return {"iceServers": list(servers), "iceTransportPolicy": "all"}
