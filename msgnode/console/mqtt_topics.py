"""Sensor topics in the console: which topics of the MQTT broker are which data objects."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse

from msgnode.core import addresses
from msgnode.devices.mqtt import topics
from msgnode.devices.mqtt.topics import TOPICS_CHANGED
from msgnode.models import MqttTopic
from msgnode.storage.control import post

from .lists import AuditedAdmin

_SAMPLE = "x"
_NAME = "Küche oben"


class MqttTopicForm(forms.ModelForm):
    """The form of a row, with validation."""

    class Meta:
        model = MqttTopic
        fields = (
            "topic", "object", "attribute", "path", "schema", "command_topic", "command_form",
            "is_enabled",
        )  # fmt: skip

    def clean_topic(self) -> str:
        topic: str = self.cleaned_data["topic"].strip()
        if fault := topics.filter_fault(topic):
            raise forms.ValidationError(f"The topic filter {fault}.")
        if topic.split("/")[0] in (settings.MQTT["PREFIX"].split("/")[0], "+", "#"):
            raise forms.ValidationError(
                f"What begins with {settings.MQTT['PREFIX']} are the frames of devices: name the "
                "first level of a topic of sensors."
            )
        return topic

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        topic = cleaned.get("topic")
        if topic:
            number = topics.wildcards(topic)
            for field in ("object", "command_topic"):
                if fault := topics.template_fault(cleaned.get(field) or "", number):
                    self.add_error(field, f"It {fault}.")
            if not self.errors:
                self._check_addresses(cleaned, number)
        return cleaned

    def _check_addresses(self, cleaned: dict[str, Any], number: int) -> None:
        template = cleaned["object"]
        command_template = cleaned.get("command_topic") or ""
        sample = topics.filled(template, (_SAMPLE,) * number, escapes=True)
        if fault := addresses.fault(sample):
            self.add_error("object", f"The address {fault}.")
        elif not addresses.is_bare_entity(parsed := addresses.parse(sample)):
            self.add_error("object", "It must be the address of one data object.")
        elif parsed.home != settings.DOMAIN:
            self.add_error("object", f"It must belong to the domain {settings.DOMAIN}.")
        missing = topics.places(command_template) - topics.places(template)
        if missing:
            self.add_error(
                "command_topic", f"The object does not name {{{min(missing)}}}, so it is not known."
            )
            return
        command = topics.filled(command_template or _SAMPLE, (_SAMPLE,) * number, escapes=False)
        if topics.wildcards(command) or topics.filter_fault(command):
            self.add_error("command_topic", "A topic to publish on must not contain wildcards.")
        elif topics.met(cleaned["topic"], command) is not None:
            self.add_error("command_topic", "The sensor topic would receive its own commands.")


@admin.register(MqttTopic)
class MqttTopicAdmin(AuditedAdmin):
    form = MqttTopicForm
    list_display = ("topic", "object", "attribute", "path", "command_topic", "is_enabled")
    readonly_fields = ("example",)
    ordering = ("topic",)
    search_fields = ("topic",)
    search_help_text = "Topic filter (its beginning)"

    @admin.display(description="such as")
    def example(self, row: MqttTopic) -> str:
        """The address of an object where the wildcards have met a blank and an umlaut."""
        number = topics.wildcards(row.topic)
        if not number or topics.template_fault(row.object, number):
            return row.object or "-"
        address = topics.filled(row.object, (_NAME,) * number, escapes=True)
        return f"{address} for {_NAME}"

    def publish(self) -> None:
        post(TOPICS_CHANGED)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if not settings.MQTT["URL"]:
            messages.warning(request, "No topic is read, because MQTT_URL names no broker.")
        return super().changelist_view(request, extra_context)
