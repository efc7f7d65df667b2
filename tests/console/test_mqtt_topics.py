"""Sensor topics in the console: what is wrong is said at its field, and workers hear of changes."""

from __future__ import annotations

import pytest

from msgnode.models import AuditEntry, ControlMessage, MqttTopic

ADD = "/admin/msgnode/mqtttopic/add/"
GOOD = {
    "topic": "sensors/+/t", "object": "context://localhost/{1}", "attribute": "temperature",
    "path": "data.celsius", "schema": "", "command_topic": "sensors/{1}/set", "is_enabled": "on",
}  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_a_row_is_taken_noted_and_made_known(operator):
    page = operator.post(ADD, GOOD, follow=True).content.decode()
    assert MqttTopic.objects.get().topic == "sensors/+/t", page
    assert ControlMessage.objects.get().kind == "mqtt.topics"
    assert AuditEntry.objects.get().action == "mqtttopic.add"
    assert "MQTT_URL names no broker" in page
    row = MqttTopic.objects.get()
    page = operator.get(f"/admin/msgnode/mqtttopic/{row.pk}/change/").content.decode()
    assert "context://localhost/K%C3%BCche%20oben for Küche oben" in page


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("topic", "sensors/t+", "wildcard beside other characters"),
        ("topic", "rethink/localhost/+/out", "frames of devices"),
        ("topic", "#", "frames of devices"),
        ("object", "context://localhost/{2}", "names {2}"),
        ("object", "context://localhost/a/{1}", "address of one data object"),
        ("object", "context://elsewhere.org/{1}", "belong to the domain localhost"),
        ("object", "nothing", "address"),
        ("command_topic", "sensors/{1}/t", "receive its own commands"),
        ("command_topic", "sensors/+/set", "must not contain wildcards"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_made(operator, field, value, said):
    page = operator.post(ADD, {**GOOD, field: value}).content.decode()
    assert said in page
    assert not MqttTopic.objects.exists()
    assert not ControlMessage.objects.exists()
