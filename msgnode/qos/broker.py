"""The interface of a QoS broker, and who its clients are. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

Value = dict[str, Any]
"""The `value` of an answer."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The client: a session, and its verified subject, if there is one."""

    session_id: str
    runtime_url: str
    issuer: str = ""
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """A requested reservation. Fields that are not given are 0 or empty.

    Attributes:
        media: the class of each flow.
        traffic_class: one class instead of the flows'.
        bitrate: in bits per second.
        seconds: its duration.
        customer: the cspId.
        client_name: the application's name for its client.
        about: the application's session (`sessionId`).
        near: the access network of each end.
    """

    media: tuple[str, ...] = ()
    traffic_class: str = ""
    bitrate: int = 0
    seconds: int = 0
    customer: str = ""
    client_name: str = ""
    about: str = ""
    near: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Criteria:
    """What an inquiry is about: the cspId, classes and access networks, empty for all."""

    customer: str = ""
    media: tuple[str, ...] = ()
    near: tuple[str, ...] = ()


class Broker(Protocol):
    """Grants reservations. Everything ends within seconds, and raises NodeError where refused."""

    async def inquire(self, criteria: Criteria) -> Value:
        """What the network has, is booked, and is free."""
        ...

    async def reserve(self, order: Order, owner: Owner) -> Value:
        """Book a reservation; an RTCConfiguration with its id, class, bandwidth and end."""
        ...

    async def read(self, id_: str, owner: Owner) -> Value:
        """How the owner's reservation is, without its credential."""
        ...

    async def list(self, owner: Owner) -> list[Value]:
        """The owner's reservations that have not ended."""
        ...

    async def renew(self, id_: str, seconds: int, owner: Owner) -> Value:
        """Renew a reservation: a later end and a new credential, as `reserve` answers."""
        ...

    async def release(self, id_: str, owner: Owner) -> None:
        """End the reservation, and what runs for it."""
        ...
