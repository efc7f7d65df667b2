"""deploy/compose.yaml, as far as it can be looked at without a container engine.

Its services start what the systemd units start, with settings that there are. What its image does
is tested where that is built (tests/e2e/test_image.py).
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.node import ROOT
from tests.test_systemd import settings_of

TEXT = (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
FILE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
OURS = {name: each for name, each in SERVICES.items() if "messaging-node" in each["image"]}
UNITS = {"node-1": "@", "node-2": "@", "web": "-web", "worker": "-worker", "beat": "-beat",
         "migrate": "-migrate"}  # fmt: skip
KNOWN = {  # of the Compose Specification
    "image", "restart", "read_only", "tmpfs", "cap_drop", "security_opt", "stop_grace_period",
    "volumes", "environment", "depends_on", "healthcheck", "command", "ports", "ulimits",
}  # fmt: skip
WHEN = {"service_started", "service_healthy", "service_completed_successfully"}


def test_each_service_of_ours_starts_what_its_unit_starts() -> None:
    assert OURS.keys() == UNITS.keys()
    for name, unit in UNITS.items():
        told = settings_of(ROOT / "deploy" / "systemd" / f"messaging-node{unit}.service")
        words = told["ExecStart"].replace("/opt/messaging-node/bin/", "").split()
        command = [re.sub("^node@.*", "node@", word) for word in OURS[name]["command"]]
        assert command == [re.sub("^node@.*", "node@", word) for word in words], name


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_says_what_compose_knows_and_refers_to_what_is_there(name: str) -> None:
    service = SERVICES[name]
    assert service.keys() <= KNOWN
    for other, condition in service.get("depends_on", {}).items():
        assert condition["condition"] in WHEN
        if condition["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other]
    for volume in service.get("volumes", []):
        source, _, target = volume.partition(":")
        assert source.startswith("/") if not target else source in FILE["volumes"], volume
    for port in service.get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:8000", port)  # only for a proxy of this machine


def test_only_what_serves_is_asked_for_its_health_by_the_image() -> None:
    for name, service in OURS.items():
        assert ("healthcheck" not in service) is ("servers.main" in " ".join(service["command"]))
        assert service["read_only"] and service["tmpfs"] == ["/tmp"], name  # noqa: S108
        assert service["image"].endswith("-reports") is (name == "worker")


def test_the_settings_named_are_settings() -> None:
    known = set(re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    for service in OURS.values():
        assert service["environment"].keys() <= known
    asked = {name for name, _ in re.findall(r"\$\{([A-Z_]+)(:[?-])?", TEXT)}
    assert asked == {"NODE_IMAGE", "DOMAIN", "SECRET_KEY", "DATABASE_PASSWORD"}


def test_the_ports_are_those_that_the_proxies_ask() -> None:
    published = {
        port.rpartition(":")[0] for each in OURS.values() for port in each.get("ports", ())
    }
    for proxy in ("nginx.conf", "haproxy.cfg"):
        text = (ROOT / "deploy" / proxy).read_text(encoding="utf-8")
        asked = re.findall(r"^    server .*?(127\.0\.0\.1:\d+)", text, re.MULTILINE)
        assert set(asked) == published
