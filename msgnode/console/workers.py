"""The workers of the node that are joined, and how their links are."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from unfold.decorators import display

from msgnode.models import Worker

from .key_figures import is_heard
from .lists import WrittenByTheNode


@admin.register(Worker)
class WorkerAdmin(WrittenByTheNode):
    list_display = ("name", "state_label", "sessions", "lease_text", "links_text", "started_at")
    sortable_by = ("name", "sessions", "started_at")
    search_fields = ("name",)
    search_help_text = "Name (its beginning): machine and process"
    fields = (
        *("name", "state_label", "sessions", "lease_text", "links_table"),
        *("started_at", "seen_at", "epoch"),
    )

    @display(
        description="state",
        label={"ready": "success", "starting": "info", "draining": "warning", "down": "danger"},
    )
    def state_label(self, worker: Worker) -> tuple[str, str]:
        if not is_heard(worker, timezone.now()):
            return "down", "not heard of"
        return worker.state, worker.state

    @display(description="lease")
    def lease_text(self, worker: Worker) -> str:
        """A worker serves only while it holds its lease; one that has ended may be taken over."""
        left = (worker.lease_until - timezone.now()).total_seconds()
        if left > 0:
            return f"runs for {left:.0f} s"
        return (
            f"ended {-left:.0f} s ago"
            if left > -60
            else f"ended {timesince(worker.lease_until)} ago"
        )

    @display(description="links")
    def links_text(self, worker: Worker) -> str:
        """The links that are up of all there are, and what went wrong on them."""
        links = worker.links
        up = sum(link["state"] == "up" for link in links)
        gaps = sum(link["gaps"] for link in links)
        lost = sum(link["lost"] for link in links)
        faults = f", {gaps:,} losses noticed, {lost:,} gaps signalled" if gaps or lost else ""
        return f"{up} of {len(links)} up{faults}"

    @display(description="links")
    def links_table(self, worker: Worker) -> SafeString:
        names = ("to", "state", "batches", "waiting_bytes", "resent", "gaps", "missed", "lost")
        titles = (
            *("to", "state", "batches", "bytes waiting", "sent again"),
            *("losses noticed", "batches asked for again", "gaps signalled"),
        )
        head = format_html_join("", '<th scope="col">{}</th>', ((title,) for title in titles))
        lines = format_html_join(
            "",
            "<tr>{}</tr>",
            (
                (format_html_join("", "<td>{}</td>", ((link.get(name, ""),) for name in names)),)
                for link in worker.links
            ),
        )
        page = "<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>"
        return format_html(page, head, lines)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).order_by("name")
