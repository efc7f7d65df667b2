"""System checks: one broken setting, one error, named."""

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.checks import run_checks

from msgnode.checks import check_node
from msgnode.settings.removed import still_set


def ids() -> list[str | None]:
    return [found.id for found in check_node()]


def test_the_defaults_are_sound() -> None:
    assert ids() == []


def test_the_checks_are_registered(settings: Any) -> None:
    settings.DOMAIN = ""
    assert "msgnode.E002" in [found.id for found in run_checks()]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("DATA_DIR", Path("/dev/null/nowhere"), "msgnode.E001"),
        ("DATA_DIR", Path(__file__), "msgnode.E001"),
        ("DOMAIN", "http://example.org", "msgnode.E002"),
        ("DOMAIN", "example.org:8000", "msgnode.E002"),
        ("DOMAIN", "-example.org", "msgnode.E002"),
        ("DOMAIN", "a" * 64 + ".org", "msgnode.E002"),
        ("DOMAIN", ".".join(["a" * 60] * 5), "msgnode.E002"),
        ("RESUME", "sometimes", "msgnode.E003"),
        ("PORT", 0, "msgnode.E007"),
        ("PORT", 65536, "msgnode.E007"),
        ("CELERY_BROKER_URL", "redis+cluster://one,two", "msgnode.E024"),
        ("ADMISSION", "nobody", "msgnode.E020"),
        ("ADMISSION", "refused", "msgnode.E020"),
        ("ADMISSION_DOMAINS", {"a.example": "all"}, "msgnode.E020"),
        ("ADMISSION_DOMAINS", {"localhost": "refused"}, "msgnode.E020"),
    ],
)
def test_a_wrong_value_is_named(settings: Any, name: str, value: object, expected: str) -> None:
    setattr(settings, name, value)
    assert ids() == [expected]


def test_what_is_no_setting_any_more_is_warned_of(settings: Any) -> None:
    settings.REMOVED_SETTINGS = still_set({"IDENTITY_LEEWAY": "30", "PORT": "8000"})
    (warned,) = check_node()
    assert warned.id == "msgnode.W004"
    assert warned.msg.startswith("IDENTITY_LEEWAY is set, but is no setting any more: ")


@pytest.mark.parametrize("name", sorted(settings.NODE))
def test_no_limit_is_negative(settings: Any, name: str) -> None:
    settings.NODE = {**settings.NODE, name: -1}
    assert "msgnode.E004" in ids()


@pytest.mark.parametrize(
    ("name", "value"),
    [("GRACE_PERIOD", 0), ("DRAIN_SECONDS", 0), ("CLOSED_SESSION_DAYS", 0), ("WORKER_TIMEOUT", 3)],
)
def test_the_edge_of_a_limit_is_allowed(settings: Any, name: str, value: float) -> None:
    settings.NODE = {**settings.NODE, name: value}
    assert ids() == []


def test_a_lease_that_is_too_short_to_be_renewed_is_refused_and_the_least_is_named(
    settings: Any,
) -> None:
    settings.NODE = {**settings.NODE, "WORKER_TIMEOUT": 2.9}
    (fault,) = check_node()
    assert fault.id == "msgnode.E004"
    assert "3 seconds or more" in str(fault.hint)


def test_limits_that_contradict_each_other_are_named(settings: Any) -> None:
    settings.NODE = {**settings.NODE, "OUTBOX_BYTES": settings.NODE["MAX_FRAME_BYTES"]}
    assert ids() == ["msgnode.E005"]


@pytest.mark.parametrize(("seconds", "expected"), [(5.0, ["msgnode.W001"]), (5.1, [])])
def test_a_ping_that_gives_up_before_a_slow_reader_may_is_warned_of(
    settings: Any, seconds: float, expected: list[str]
) -> None:
    settings.NODE = {**settings.NODE, "PING_TIMEOUT": seconds}
    assert ids() == expected


@pytest.mark.parametrize(
    ("group", "name", "value", "expected"),
    [
        ("REGISTRY", "ACCESS", "opne", "msgnode.E010"),
        ("REGISTRY", "UNAVAILABLE_CODE", 503, "msgnode.E011"),
        ("REGISTRY", "EXPIRES_MAX", 0, "msgnode.E012"),
        ("REGISTRY", "CLOSE_GRACE", float("nan"), "msgnode.E012"),
        ("REGISTRY", "DOMAIN_URL", "registry.example.org", "msgnode.E015"),
        ("POLICY", "TIME_ZONE", "Europe/Atlantis", "msgnode.E013"),
        ("POLICY", "TIME_ZONE", "../etc", "msgnode.E013"),
        ("POLICY", "LOG_DAYS", -1, "msgnode.E014"),
        ("TRACING", "RATIO", 1.1, "msgnode.E021"),
    ],
)
def test_a_wrong_word_of_registry_and_policies_is_named(
    settings: Any, group: str, name: str, value: object, expected: str
) -> None:
    setattr(settings, group, {**getattr(settings, group), name: value})
    assert ids() == [expected]


MQTT = {
    "URL": "mqtt://broker.example.org", "PREFIX": "rethink", "CA_FILE": "", "CERT_FILE": "",
    "WINDOW": 1_000, "MESSAGES_PER_SECOND": 5_000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "expected", "said"),
    [
        ({}, None, ""),
        ({"URL": "http://broker.example.org"}, "msgnode.E016", "not the URL of a broker"),
        ({"URL": "mqtt://broker:70000"}, "msgnode.E016", "not the URL of a broker"),
        ({"CA_FILE": "/nowhere.pem"}, "msgnode.E016", "MQTT_CA_FILE /nowhere.pem"),
        ({"CERT_FILE": "/nowhere.pem"}, "msgnode.E016", "MQTT_CERT_FILE /nowhere.pem"),
        ({"PREFIX": "a/+"}, "msgnode.E016", "MQTT_PREFIX"),
        ({"WINDOW": 0}, "msgnode.E017", "MQTT_WINDOW"),
        ({"WINDOW": 65_536}, "msgnode.E017", "MQTT_WINDOW"),
        ({"MESSAGES_PER_SECOND": 0}, "msgnode.E017", "MQTT_MESSAGES_PER_SECOND"),
    ],
)
def test_a_connector_that_is_switched_on_says_what_it_lacks(
    settings: Any, changed: dict[str, object], expected: str | None, said: str
) -> None:
    settings.MQTT = {**MQTT, **changed, "URL": ""}
    assert ids() == [], "it is switched off"
    settings.MQTT = {**MQTT, **changed}
    found = check_node()
    assert [each.id for each in found] == ([expected] if expected else [])
    assert all(said in each.msg for each in found)


def test_outlets_that_are_switched_on_say_what_they_lack(settings: Any) -> None:
    settings.DEVICE_WEBHOOKS = True
    settings.PUSH_CONTACT = "operator@example.org"
    assert ids() == ["msgnode.E018", "msgnode.E019", "msgnode.E019"]
    settings.DEVICE_HTTP = True
    assert ids() == ["msgnode.E019"]
    settings.PUSH_CONTACT = "mailto:operator@example.org"
    assert ids() == []
    settings.WEBHOOK_NETWORKS = ["10.0.0.0/8", "10.0.0.1/8"]
    assert ids() == ["msgnode.E018"]
