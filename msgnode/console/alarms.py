"""Alarms in the console: what stands and stood, the rules of operators, and who is told."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from unfold.decorators import action, display
from unfold.widgets import UnfoldAdminSelectWidget

from msgnode.core.explanations import ALARMS
from msgnode.models import Alarm, AlarmNotice, AlarmRule, WebhookHost
from msgnode.monitoring.alarm_rules import CHANGED
from msgnode.monitoring.thresholds import FIGURES, number
from msgnode.storage import notices
from msgnode.storage.alarms import STUCK_ALARM
from msgnode.storage.control import post

from .acted_meanwhile import is_as_shown
from .audit import note
from .confirm import ask, is_confirmed, too_many
from .lists import AuditedAdmin, OfferedFilter, WrittenByTheNode, link, page_of
from .own_log_in import factor_first
from .peer_messages import list_of


class StandingFilter(OfferedFilter):
    title = "state"
    parameter_name = "standing"
    offered = (("yes", "standing"), ("no", "cleared"))

    def narrowed(self, rows: QuerySet[Alarm], value: str) -> QuerySet[Alarm]:
        return rows.filter(cleared_at__isnull=value == "yes")


@admin.register(Alarm)
class AlarmAdmin(WrittenByTheNode):
    list_display = (
        *("text", "kind_explained", "subject", "state_label"),
        *("count", "raised_at", "last_at", "leads_to"),
    )
    list_filter = (StandingFilter,)
    readonly_fields = ("leads_to",)
    ordering = ("-last_at",)
    sortable_by = ("raised_at", "last_at", "kind")
    search_fields = ("subject",)
    search_help_text = "Subject (its beginning)"
    actions = ("clear",)

    @display(description="state", label={"standing": "danger", "cleared": "default"})
    def state_label(self, alarm: Alarm) -> str:
        return "cleared" if alarm.cleared_at else "standing"

    @display(description="kind", ordering="kind")
    def kind_explained(self, alarm: Alarm) -> str:
        """The kind, linked to the page that says what to do."""
        if alarm.kind not in ALARMS:
            return alarm.kind
        page = reverse("problem", args=["alarms", alarm.kind])
        return format_html('<a href="{}">{}</a>', page, alarm.kind)

    @display(description="to be looked at")
    def leads_to(self, alarm: Alarm) -> str:
        """A link to the page for the cause."""
        if alarm.kind != STUCK_ALARM:
            return ""
        text = "Messages waiting for it"
        return format_html('<a class="text-link" href="{}">{}</a>', list_of(alarm.subject), text)

    @action(description="Clear the selected alarms", permissions=["clear"])
    def clear(self, request: HttpRequest, queryset: QuerySet[Alarm]) -> None:
        if too_many(request, queryset):
            return
        now, actor = timezone.now(), request.user.get_username()
        with transaction.atomic():
            alarms = list(queryset.filter(cleared_at=None).select_for_update())
            for alarm in alarms:
                alarm.cleared_at = now
                alarm.save(update_fields=["cleared_at"])
                # By its subject, which is what is looked for when a person is erased.
                about = alarm.subject or alarm.kind
                before = {"kind": alarm.kind, "cleared_at": None}
                note(actor, "alarm.clear", about, before, {**before, "cleared_at": now})
        text = f"{len(alarms)} cleared. An alarm whose cause remains is raised again."
        messages.success(request, text)

    def has_clear_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("msgnode.change_alarm")


MOST_MAILS = 20
LONGEST = 24 * 3600
CHOICES = [
    (name, f"{figure.title} ({figure.unit})" if figure.unit else figure.title)
    for name, figure in FIGURES.items()
]


class AlarmRuleForm(forms.ModelForm):
    figure = forms.ChoiceField(
        choices=CHOICES,
        widget=UnfoldAdminSelectWidget,
        help_text="The value for all workers together, measured every two seconds.",
    )
    is_below = forms.TypedChoiceField(
        label="is",
        choices=((False, "above the limit"), (True, "below the limit")),
        coerce=lambda value: value in (True, "True"),
        widget=UnfoldAdminSelectWidget,
    )

    class Meta:
        model = AlarmRule
        fields = (
            *("name", "figure", "is_below", "limit", "seconds", "note"),
            *("mail_to", "webhook", "silent_until", "is_enabled"),
        )

    def clean_limit(self) -> float:
        limit: float = self.cleaned_data["limit"]
        if not math.isfinite(limit):
            raise ValidationError("This is not a number.")
        return limit

    def clean_seconds(self) -> int:
        seconds: int = self.cleaned_data["seconds"]
        if seconds > LONGEST:
            raise ValidationError(f"At most one day ({LONGEST} seconds).")
        return seconds

    def clean_mail_to(self) -> str:
        lines = [line.strip() for line in self.cleaned_data["mail_to"].splitlines()]
        people = [line for line in lines if line]
        if len(people) > MOST_MAILS:
            raise ValidationError(f"At most {MOST_MAILS} addresses.")
        for person in people:
            try:
                validate_email(person)
            except ValidationError:
                raise ValidationError(f"{person[:100]} is not an e-mail address.") from None
        return "\n".join(people)

    def clean_webhook(self) -> str:
        webhook: str = self.cleaned_data["webhook"].strip()
        if webhook and (fault := notices.webhook_fault(webhook)):
            raise ValidationError(fault)
        return webhook


@admin.register(AlarmRule)
class AlarmRuleAdmin(AuditedAdmin):
    form = AlarmRuleForm
    acts_on = AlarmRuleForm.Meta.fields
    list_display = ("name", "condition", "state_label", "told", "silent_until")
    ordering = ("name",)
    sortable_by = ("name",)
    search_fields = ("name",)
    search_help_text = "Name (its beginning)"
    actions_detail = ("send_test", "silence")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Show the webhook only to those who may change it: its path may be a secret."""
        fields: tuple[str, ...] = AlarmRuleForm.Meta.fields
        may_change = self.has_change_permission(request, obj)
        return fields if may_change else tuple(each for each in fields if each != "webhook")

    def get_queryset(self, request: HttpRequest) -> QuerySet[AlarmRule]:
        standing = Alarm.objects.filter(
            kind=notices.KIND, subject=OuterRef("name"), cleared_at=None
        )
        return super().get_queryset(request).annotate(stands=Exists(standing))

    def publish(self) -> None:
        post(CHANGED)

    @display(description="condition")
    def condition(self, rule: AlarmRule) -> str:
        figure = FIGURES.get(rule.figure)
        if figure is None:
            return f"{rule.figure} is not a figure of this version"
        side = "below" if rule.is_below else "above"
        limit = f"{number(rule.limit)} {figure.unit}".rstrip()
        return f"{figure.title} {side} {limit} for {rule.seconds:,} s"

    @display(
        description="state",
        label={"standing": "danger", "well": "success", "silenced": "warning", "off": "default"},
    )
    def state_label(self, rule: Any) -> str:
        if not rule.is_enabled:
            return "off"
        if rule.stands:
            return "standing"
        is_silent = rule.silent_until is not None and rule.silent_until > timezone.now()
        return "silenced" if is_silent else "well"

    @display(description="tells")
    def told(self, rule: AlarmRule) -> str:
        people = rule.mail_to.split()
        targets = [*people[:2], *(["…"] if len(people) > 2 else [])]
        if rule.webhook:
            targets.append(notices.shown(rule.webhook))
        return ", ".join(targets) or "nobody"

    def has_try_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return request.user.has_perm("msgnode.change_alarmrule")

    @action(description="Send a test", url_path="test", permissions=["try"], icon="send")
    def send_test(self, request: HttpRequest, object_id: str) -> HttpResponse:
        rule = self.row_of_page(request, object_id)
        if not self._is_confirmed(request, rule):
            return self._ask(request, rule, "Send a test", f"{self.told(rule)} will be told.")
        told = notices.tell(rule, f"This is a test of the rule {rule.name}.", is_raised=False)
        if told:
            messages.success(request, f"{told} to be told; see Notices of alarms.")
        else:
            messages.warning(request, "The rule has no recipients, or is silenced.")
        return redirect(page_of(rule))

    @action(
        description="Silence for an hour", url_path="silence", permissions=["try"],
        icon="notifications_paused",
    )  # fmt: skip
    def silence(self, request: HttpRequest, object_id: str) -> HttpResponse:
        rule = self.row_of_page(request, object_id)
        if not self._is_confirmed(request, rule):
            warning = "The console still shows the alarm, but nobody is notified for an hour."
            return self._ask(request, rule, "Silence for an hour", warning)
        rule.silent_until = (timezone.now() + timedelta(hours=1)).replace(microsecond=0)
        rule.save(update_fields=["silent_until"])
        messages.success(request, f"Until {rule.silent_until:%H:%M} UTC nobody is notified.")
        return redirect(page_of(rule))

    def _is_confirmed(self, request: HttpRequest, rule: AlarmRule) -> bool:
        return is_confirmed(request) and is_as_shown(self, request, rule)

    def _ask(self, request: HttpRequest, rule: AlarmRule, title: str, warning: str) -> HttpResponse:
        rules = AlarmRule.objects.filter(pk=rule.pk)
        return ask(self, request, rules, action="", title=title, warning=warning)


class WebhookHostForm(forms.ModelForm):
    class Meta:
        model = WebhookHost
        fields = ("host", "note")

    def clean_host(self) -> str:
        host: str = self.cleaned_data["host"].strip().lower()
        if urlsplit(f"https://{host}").hostname != host or len(host.split()) != 1:
            raise ValidationError("This is no host name: no scheme, port or path.")
        return host


@admin.register(WebhookHost)
class WebhookHostAdmin(AuditedAdmin):
    """What is changed here lets the node send elsewhere: it takes a second factor, lately given."""

    form = WebhookHostForm
    acts_on = WebhookHostForm.Meta.fields
    list_display = ("host", "note")
    ordering = ("host",)
    search_fields = ("host",)
    search_help_text = "Host (its beginning)"

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if (hosts := settings.ALARM_WEBHOOK_HOSTS) and request.method == "GET":
            messages.info(request, f"ALARM_WEBHOOK_HOSTS has these besides: {', '.join(hosts)}.")
        is_change = request.method == "POST"
        refusal = factor_first(request, request.path) if is_change else None
        return refusal or super().changelist_view(request, extra_context)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        may_change = self.has_add_permission(request) or self.has_change_permission(request)
        refusal = factor_first(request, request.path) if may_change else None
        return refusal or super().changeform_view(request, *args, **kwargs)

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return factor_first(request, request.path) or super().delete_view(request, *args, **kwargs)


@admin.register(AlarmNotice)
class AlarmNoticeAdmin(WrittenByTheNode):
    list_display = ("at", "rule_link", "text", "whom", "state_label", "attempts", "error")
    list_select_related = ("rule",)
    ordering = ("-id",)
    sortable_by = ("at",)
    fields = ("at", "rule_link", "text", "whom", "state_label", "attempts", "due_at", "error")
    readonly_fields = fields

    @display(description="rule")
    def rule_link(self, notice: AlarmNotice) -> str:
        return link(notice.rule, notice.rule.name)

    @display(description="to")
    def whom(self, notice: AlarmNotice) -> str:
        return notices.shown(notice.target)

    @display(
        description="state",
        label={"sent": "success", "waiting": "warning", "given up": "danger"},
    )
    def state_label(self, notice: AlarmNotice) -> str:
        if notice.sent_at:
            return "sent"
        return "given up" if notice.attempts >= notices.MOST_ATTEMPTS else "waiting"
