"""Accounts in the console: operators, users of the domain, groups; and their failed log-ins.

One table has both. An operator has a role, which lets him in (roles.py); a user of the domain has
none and logs in at the embedded provider only. Nobody gives more than he has, nor changes an
account or a role that may more than he may: superusers are made by superusers. Who is switched off
or deleted is logged out at once. Deleting a failed log-in opens the name again for that address.
"""

from __future__ import annotations

from typing import Any

from axes.models import AccessAttempt
from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as StockGroupAdmin
from django.contrib.auth.admin import UserAdmin as StockUserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin, StackedInline
from unfold.decorators import action, display
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from msgnode.identity import second_factor
from msgnode.identity.provider.revocation import end_browser_sessions, end_logins
from msgnode.identity.provider.token_claims import name_fault
from msgnode.models import OperatorIdentity, RoleAccess

from . import roles
from .audit import note
from .lists import NeverEdited

admin.site.unregister(User)
admin.site.unregister(Group)

_FOR_SUPERUSERS = ("is_superuser",)


class RolesField(forms.ModelMultipleChoiceField):
    """Boxes to tick, with what each role may."""

    widget = UnfoldAdminCheckboxSelectMultipleWidget

    def label_from_instance(self, group: Any) -> str:
        """The name and what it means."""
        if said := roles.DESCRIPTIONS.get(group.name):
            return f"{group.name}: {said}"
        number = group.permissions.count()
        return f"{group.name}: {number} permissions" if number else f"{group.name}: no role"


@admin.register(User)
class UserAdmin(StockUserAdmin, ModelAdmin):
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "role", "is_active", "last_login")
    list_filter = (("groups", admin.RelatedFieldListFilter), "is_active")
    list_select_related = ()
    actions = ("end_logins", "remove_factors")
    add_fieldsets = (
        (
            None,
            {
                "classes": ("wide",),
                "fields": (
                    "username", "email", "groups", "usable_password", "password1", "password2",
                ),
            },
        ),
    )  # fmt: skip
    fieldsets = (
        (None, {"fields": ("username", "email", "first_name", "last_name", "password")}),
        (
            "What it may",
            {
                "fields": ("groups", "is_active", "is_superuser"),
                "description": "With a role it logs in to this console, too. Without one it is a "
                "user of the domain.",
            },
        ),
        ("Since", {"fields": ("last_login", "date_joined")}),
    )
    filter_horizontal = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        return super().get_queryset(request).prefetch_related("groups")

    @display(description="role", label={"superuser": "danger", "user of the domain": "default"})
    def role(self, user: User) -> str:
        if user.is_superuser:
            return "superuser"
        if not user.is_staff:
            return "user of the domain"
        return ", ".join(sorted(group.name for group in user.groups.all())) or "no role"

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        since: tuple[str, ...] = ("last_login", "date_joined")
        if obj is not None and OperatorIdentity.objects.filter(user=obj).exists():
            since = ("groups", *since)  # its issuer's groups give them at each log-in
        return since if request.user.is_superuser else (*_FOR_SUPERUSERS, *since)

    def formfield_for_manytomany(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name != "groups":
            return super().formfield_for_manytomany(db_field, request, **kwargs)
        groups = roles.given_by(request.user).prefetch_related("permissions").order_by("name")
        return RolesField(queryset=groups, required=False, label="Roles")

    def save_related(self, request: HttpRequest, form: Any, *args: Any) -> None:
        """Roles are what lets an account in; without one it is not let in any more."""
        super().save_related(request, form, *args)
        user = form.instance
        if "groups" in form.changed_data and user.is_staff != (is_let_in := roles.has_role(user)):
            user.is_staff = is_let_in
            user.save(update_fields=["is_staff"])

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_change_permission(request, obj) and (
            obj is None or roles.may_touch(request.user, obj)
        )

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_delete_permission(request, obj) and (
            obj is None or roles.may_touch(request.user, obj)
        )

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        is_ours = not OperatorIdentity.objects.filter(user=obj).exists()
        if is_ours and (fault := name_fault(obj)):
            self.message_user(request, f"{obj.get_username()}: {fault}.", messages.WARNING)
        if change and "is_active" in form.changed_data and not obj.is_active:
            _end(obj)

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> Any:  # noqa: A002
        """A new password ends what the old one began; browsers are logged out by Django."""
        response = super().user_change_password(request, id, form_url)
        if request.method == "POST" and response.status_code == 302:
            user = self.get_object(request, id)
            if user is not None:
                end_logins(user, close=True)
        return response

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        _end(obj)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        for user in queryset:
            _end(user)
        super().delete_queryset(request, queryset)

    @action(description="Log the selected users out everywhere", permissions=["change"])
    def end_logins(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        users = [user for user in queryset[:500] if roles.may_touch(request.user, user)]
        for user in users:
            _end(user)
        self.message_user(request, f"{len(users)} logged out: browsers, tokens and sessions.")

    @action(description="Remove the second factors of the selected users", permissions=["change"])
    def remove_factors(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        """For who has lost them; the log-ins end, so that a thief's do, too."""
        users = [user for user in queryset[:500] if roles.may_touch(request.user, user)]
        for user in users:
            if number := second_factor.remove(user):
                _end(user)
                actor = request.user.get_username()
                note(actor, "second-factor.remove-all", user, {"number": number}, {})
        self.message_user(request, "Their second factors are removed, and they are logged out.")


def _end(user: User) -> None:
    end_logins(user, close=True)
    end_browser_sessions(user)


class AccessInline(StackedInline):
    """What a role asks of who has it."""

    model = RoleAccess
    can_delete = False
    max_num = 1


def _may_give(request: HttpRequest, group: Group | None) -> bool:
    return group is None or roles.given_by(request.user).filter(pk=group.pk).exists()


@admin.register(Group)
class GroupAdmin(StockGroupAdmin, ModelAdmin):
    """Roles of one's own; the four of roles.py get their permissions back at each upgrade."""

    list_display = ("name", "may")
    inlines = (AccessInline,)

    def formfield_for_manytomany(self, db_field: Any, request: Any = None, **kwargs: Any) -> Any:
        if db_field.name == "permissions":
            own = roles.rights_of(request.user).values("pk")
            known = Permission.objects.filter(pk__in=own).select_related("content_type")
            kwargs["queryset"] = known.order_by("content_type__app_label", "codename")
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def has_change_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return super().has_change_permission(request, obj) and _may_give(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return super().has_delete_permission(request, obj) and _may_give(request, obj)

    @admin.display(description="may")
    def may(self, group: Group) -> str:
        return roles.DESCRIPTIONS.get(group.name, "")


@admin.register(AccessAttempt)
class FailedLoginAdmin(NeverEdited):
    list_display = ("username", "ip_address", "state_label", "failures_since_start", "attempt_time")
    ordering = ("-attempt_time",)
    sortable_by = ("attempt_time",)
    search_fields = ("username",)
    search_help_text = "User name (its beginning)"
    fields = ("username", "ip_address", "user_agent", "failures_since_start", "attempt_time",
              "path_info")  # fmt: skip

    @display(description="state", label={"shut": "danger", "counted": "default"})
    def state_label(self, attempt: AccessAttempt) -> str:
        is_shut = attempt.failures_since_start >= settings.AXES_FAILURE_LIMIT
        return "shut" if is_shut else "counted"
