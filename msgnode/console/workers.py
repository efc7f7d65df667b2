"""The workers that are joined, the components that each reports, and the control outbox."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
from django import forms
from django.contrib import admin, messages
from django.db.models import OuterRef, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.defaultfilters import filesizeformat
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from unfold.decorators import action, display

from msgnode.models import ComponentStatus, ControlMessage, NodeSample, Worker
from msgnode.monitoring.samples import Sample
from msgnode.workers.rebalancing import RATE, TOLERANCE

from . import operator_actions
from .confirm import ask, is_confirmed
from .key_figures import is_heard
from .lists import OfferedFilter, WrittenByTheNode, cut, in_short


@admin.register(Worker)
class WorkerAdmin(WrittenByTheNode):
    list_display = (
        *("name", "state_label", "version", "sessions", "messages", "traffic", "processor"),
        *("lease_text", "links_text", "started_at"),
    )
    sortable_by = ("name", "sessions", "started_at")
    actions = ("drain",)
    actions_list = ("even_out",)
    actions_detail = ("drain_one",)
    search_fields = ("name",)
    search_help_text = "Name (its beginning): machine and process"
    fields = (
        *("name", "state_label", "version", "sessions", "messages", "traffic", "processor"),
        *("lease_text", "links_table"),
        *("started_at", "seen_at", "epoch"),
    )

    @display(
        description="state",
        label={
            "ready": "success", "starting": "info", "draining": "warning", "not heard of": "danger",
        },
    )  # fmt: skip
    def state_label(self, worker: Worker) -> str:
        return worker.state if is_heard(worker, timezone.now()) else "not heard of"

    def _rates(self, worker: Worker) -> Sample | None:
        """What the worker did in its last minute; it is written at the end of each."""
        if worker.last_minute is None:  # type: ignore[attr-defined]  # annotated
            return None
        return msgspec.convert(worker.last_minute, Sample)  # type: ignore[attr-defined]

    @display(description="messages", empty_value="")
    def messages(self, worker: Worker) -> str | None:
        """In, and out, a second."""
        lately = self._rates(worker)
        if lately is None:
            return None
        return f"{lately.messages / 60:,.1f}/s in, {lately.copies / 60:,.1f}/s out"

    @display(description="bytes", empty_value="")
    def traffic(self, worker: Worker) -> str | None:
        lately = self._rates(worker)
        if lately is None:
            return None
        sizes = (filesizeformat(each / 60) for each in (lately.bytes_in, lately.bytes_out))
        return "{}/s in, {}/s out".format(*sizes)

    @display(description="processor", empty_value="")
    def processor(self, worker: Worker) -> str | None:
        lately = self._rates(worker)
        return None if lately is None else f"{100 * lately.cpu / 60:.0f} %"

    def has_order_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return request.user.has_perm("msgnode.change_session")

    @action(description="Even out", url_path="even", permissions=["order"], icon="balance")
    def even_out(self, request: HttpRequest) -> HttpResponse:
        """Have workers with more than their share of sessions tell some to come back."""
        if not is_confirmed(request):
            return ask(
                self,
                request,
                self.get_queryset(request),
                action="even_out",
                title="Even out",
                warning="Workers with more than their share of sessions tell runtimes to come "
                f"back, at most {RATE:.0f} a second, until all are even within {TOLERANCE:.0%}.",
            )
        self._order(request, operator_actions.even_out)
        return redirect("admin:msgnode_worker_changelist")

    @action(description="Drain and restart", permissions=["order"])
    def drain(self, request: HttpRequest, workers: Any) -> HttpResponse | None:
        if workers.count() != 1:
            messages.error(request, "One worker at a time: the others take its sessions.")
            return None
        if not is_confirmed(request):
            return ask(
                self,
                request,
                workers,
                action="drain",
                title="Drain and restart the worker",
                warning="Its sessions are told to come back, and go to the other workers. "
                "Then it ends; systemd, supervisord or manage.py run starts it again.",
            )
        self._order(request, partial(operator_actions.restart_worker, workers[0]))
        return None

    @action(
        description="Drain and restart", url_path="drain", permissions=["order"], icon="autorenew"
    )
    def drain_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        workers = self.get_queryset(request).filter(pk=object_id)
        return self.drain(request, workers) or redirect("admin:msgnode_worker_changelist")

    def _order(self, request: HttpRequest, do: Callable[[str], str]) -> None:
        try:
            messages.success(request, do(request.user.get_username()))
        except forms.ValidationError as why:
            messages.error(request, why.messages[0])

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
    def links_table(self, worker: Worker) -> SafeString | str:
        if not worker.links:
            return "none"
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
        page = (
            '<div class="console-scroll" tabindex="0" role="region" aria-label="Links, table">'
            '<table class="console-table"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
        )
        return format_html(page, head, lines)

    def get_queryset(self, request: HttpRequest) -> Any:
        minutes = NodeSample.objects.filter(
            span=60, worker=OuterRef("name"), at__gt=timezone.now() - timedelta(minutes=3)
        )
        figures = minutes.order_by("-at").values("figures")[:1]
        return (
            super().get_queryset(request).annotate(last_minute=Subquery(figures)).order_by("name")
        )


# --- what each reports of its components ----------------------------------------------------------


class KindFilter(OfferedFilter):
    title = parameter_name = "kind"
    offered = tuple((kind, kind) for kind in ("component", "connector", "protostub", "stub"))


@admin.register(ComponentStatus)
class ComponentStatusAdmin(WrittenByTheNode):
    list_display = (
        "name_and_worker", "kind", "state_label", "address", "since", "answered", "failed",
        "error_in_short",
    )  # fmt: skip
    sortable_by = ("name_and_worker", "kind", "answered", "failed", "since")
    list_filter = (KindFilter,)
    search_fields = ("name",)
    search_help_text = "Name (its beginning)"

    @display(description="name", ordering="name", header=True)
    def name_and_worker(self, status: ComponentStatus) -> tuple[str, str]:
        return status.name, status.worker

    @display(description="last error")
    def error_in_short(self, status: ComponentStatus) -> str:
        return in_short(status.last_error, cut(status.last_error))

    @display(description="state", label={"live": "success", "not heard of": "danger"})
    def state_label(self, status: ComponentStatus) -> tuple[str, str]:
        if not is_heard(status, timezone.now()):
            return "not heard of", "not heard of"
        is_well = status.state == "live" or status.state.endswith(" connected")
        return ("live" if is_well else status.state), status.state


# --- what was left for them -----------------------------------------------------------------------

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
