"""Alarm rules in the console: alarms that operators define, who is told, and what became of it."""

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
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from unfold.decorators import action, display
from unfold.widgets import UnfoldAdminSelectWidget

from msgnode.models import Alarm, AlarmNotice, AlarmRule, WebhookHost
from msgnode.monitoring.alarm_rules import CHANGED
from msgnode.monitoring.thresholds import FIGURES, number
from msgnode.storage import notices
from msgnode.storage.control import post

from .acted_meanwhile import is_as_shown
from .confirm import ask, is_confirmed
from .lists import AuditedAdmin, WrittenByTheNode, link, page_of
from .own_log_in import factor_first

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
