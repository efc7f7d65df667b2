"""The control outbox in the console: which changes were left for the workers. Read only."""

from __future__ import annotations

import json

from django.contrib import admin
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import display

from msgnode.models import ControlMessage

from .lists import WrittenByTheNode

SHOWN = 3
"""Members of a list that are named."""
LONGEST = 200


@admin.register(ControlMessage)
class ControlMessageAdmin(WrittenByTheNode):
    list_display = ("id", "kind", "payload_text", "created_at")
    ordering = ("-id",)
    sortable_by = ("id",)
    search_fields = ("kind",)
    search_help_text = "Kind (its beginning), e.g. session.end"
    fields = ("kind", "payload_text", "created_at")

    @display(description="change for the workers")
    def payload_text(self, message: ControlMessage) -> SafeString | str:
        told = message.payload
        if not isinstance(told, dict):
            return _short(told)
        lines = ((name.replace("_", " "), _short(value)) for name, value in told.items() if value)
        shown = format_html_join("", "<div>{}: {}</div>", lines)
        return shown or "no further data"


def _short(value: object) -> str:
    """A value in words: the first few members of a list, and how many more there are."""
    if isinstance(value, list):
        more = f" and {len(value) - SHOWN:,} more" if len(value) > SHOWN else ""
        return ", ".join(_short(each) for each in value[:SHOWN]) + more
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) < LONGEST else text[: LONGEST - 1] + "…"
