"""docs/metrics.md names every metric, with its labels, and every alarm: each once, and no other."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from msgnode.devices.mqtt.counters import MqttCounters
from msgnode.devices.push import PushCounters
from msgnode.devices.webhook import Webhooks
from msgnode.monitoring import collector, connector_figures, peer_figures
from msgnode.monitoring.collector import NodeCollector
from msgnode.net.http import HttpClient
from msgnode.node import Node
from msgnode.node.subsystem import Subsystem
from msgnode.ops import metrics
from tests.node import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
METRIC = re.compile(r"^\| `(msgnode_\w+)` \|([^|]*)\|", re.MULTILINE)
ALARM = re.compile(r"^\| `([a-z]+(?:-[a-z]+)*)` \|", re.MULTILINE)
LINK = {"to": "other", "state": "up", "waiting_bytes": 0} | dict.fromkeys(
    ("batches", "resent", "gaps", "missed", "lost"), 0
)


class Wakeups:
    """None yet."""

    counters = PushCounters()

    def __len__(self) -> int:
        return 0


@pytest.mark.django_db
def test_the_page_has_every_metric_with_its_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Node().parts
    monkeypatch.setattr(parts.tracer, "spans", {"sent": 0, "failed": 0})
    rooms = (*parts.subsystems, *(Subsystem(metrics=each) for each in _switched_off()))
    found: dict[str, tuple[str, ...]] = {}
    for metric in [
        *NodeCollector(replace(parts, subsystems=rooms)).collect(),
        *metrics.of_the_node({}),
    ]:
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        found[name] = tuple(metric._labelnames)  # type: ignore[attr-defined]
    documented = [
        (name, tuple(re.findall(r"\w+", labels))) for name, labels in METRIC.findall(PAGE)
    ]
    assert sorted(documented) == sorted(found.items())


def _switched_off() -> Iterator[Any]:
    """The metrics of rooms that the worker of this test does not have."""
    numbers = dict.fromkeys(("devices", "topics", "objects", "unacknowledged"), 0)
    mqtt = SimpleNamespace(state="standby", counters=MqttCounters(), **numbers)
    yield partial(connector_figures.mqtt, mqtt)
    yield partial(connector_figures.webhooks, Webhooks(HttpClient((), 1.0, 1), lambda: True, str))
    yield partial(connector_figures.wakeups, Wakeups())
    guests = type("Guests", (), {"steps": Counter(), "__len__": lambda _: 0})()
    counting = SimpleNamespace(steps=Counter())
    yield partial(connector_figures.invitations, counting, counting, guests)
    yield partial(peer_figures.peers, SimpleNamespace(links={}))
    homes = SimpleNamespace(asked=0, not_known=0)
    network = SimpleNamespace(homes=homes, interest=SimpleNamespace(watched=()))
    transport = SimpleNamespace(figures=lambda: [LINK])
    cluster = SimpleNamespace(transport=transport, network=network)
    yield partial(collector.other_workers, cluster)


def test_the_page_has_every_alarm() -> None:
    raised = {kind for path in _sources() for kind in _raised(path)}
    assert len(raised) > 5
    assert sorted(ALARM.findall(PAGE)) == sorted(raised)


def _sources() -> Iterator[Path]:
    for package in ("msgnode", "policies", "registry", "spark"):
        yield from (ROOT / package).rglob("*.py")


_RAISES = ("raise_alarm", "Raised", "fails")


def _raised(path: Path) -> Iterator[str]:
    """The kinds of alarms a module raises: texts, or constants of its folder or of `alarms`."""
    text = path.read_text(encoding="utf-8")
    if not any(name in text for name in _RAISES):
        return
    tree = ast.parse(text)
    constants = {**_constants(ROOT / "msgnode" / "storage" / "alarms.py")}
    for beside in (*path.parent.glob("*.py"), path):
        constants |= _constants(beside)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if _last_name(node.func).lstrip("_") in _RAISES:
            kind = node.args[0]
            if isinstance(kind, ast.Constant):
                yield str(kind.value)
            elif (name := _last_name(kind)) in constants:
                yield constants[name]


@cache
def _constants(path: Path) -> dict[str, str]:
    return {
        target.id: node.value.value
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
