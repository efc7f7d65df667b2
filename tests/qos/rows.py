"""Rows that tests of the QoS broker begin with."""

from __future__ import annotations

import uuid
from typing import Any

from msgnode.models import Session, Worker
from msgnode.qos.broker import Order, Owner
from msgnode.qos.models import Customer, TrafficClass, TurnServer

VIDEO = 2_500_000


def classes() -> None:
    """The traffic classes, where another test has emptied the tables."""
    TrafficClass.objects.get_or_create(name="audio", defaults={"bitrate": 100_000})
    TrafficClass.objects.get_or_create(name="video", defaults={"bitrate": VIDEO})


def worker(epoch: str) -> Worker:
    """A worker that runs, by its row."""
    return Worker.objects.create(epoch=epoch, name=epoch, host="localhost", pid=1, state="ready")


def server(name: str = "turn1", capacity: int = 2 * VIDEO, **more: Any) -> TurnServer:
    classes()
    if named := more.pop("traffic_class", None):
        more["traffic_class"] = TrafficClass.objects.get(name=named)
    return TurnServer.objects.create(
        name=name, urls=f"turn:{name}.example:3478?transport=udp", capacity=capacity, **more
    )


def customer(name: str = "csp1", **more: Any) -> Customer:
    return Customer.objects.create(name=name, **more)


def owner(subject: str = "", runtime: str = "") -> Owner:
    """Somebody with an open session."""
    id_ = uuid.uuid4()
    url = runtime or f"runtime://localhost/{id_.hex}"
    issuer = "https://issuer.example" if subject else ""
    Session.objects.create(id=id_, runtime_url=url, issuer=issuer, subject=subject)
    return Owner(str(id_), url, issuer, subject)


def video(**more: Any) -> Order:
    return Order(media=("video",), **more)
