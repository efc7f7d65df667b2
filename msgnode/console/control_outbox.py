"""The control outbox in the console: which changes were left for the workers. Read only."""

from __future__ import annotations

import json

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display

from msgnode.models import ControlMessage

from .lists import WrittenByTheNode


@admin.register(ControlMessage)
class ControlMessageAdmin(WrittenByTheNode):
    list_display = ("id", "kind", "payload_text", "created_at")
    ordering = ("-id",)
    sortable_by = ("id",)
    search_fields = ("kind",)
    search_help_text = "Kind (its beginning), e.g. session.end"
    fields = ("kind", "payload_text", "created_at")

    @display(description="payload")
    def payload_text(self, message: ControlMessage) -> SafeString:
        text = json.dumps(message.payload, ensure_ascii=False)
        return format_html("<code>{}</code>", text if len(text) < 300 else text[:299] + "…")
