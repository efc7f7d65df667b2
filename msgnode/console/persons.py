"""Finds, exports and erases what the node stores about a person.

A person is named by an e-mail address, a user name of this domain, a user URL (`user://…`), a GUID,
or the subject at an issuer. From that follow the other names the node knows (`Names`), and from
those the rows. docs/security.md says what is stored, why and for how long.

The traffic record has addresses, not persons; with RECORD_PSEUDONYM_KEY only their hashes. The
`pseudonyms` of a person's addresses are exported, so that they can be found there; the files are
deleted by age, never edited.

A runtime may be used by several persons, as in an internet café. What is known only by its URL
belongs to a person only if nobody else has used that runtime.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from axes.models import AccessAttempt
from django.apps import apps
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.models import Exists, Model, OuterRef, Q, QuerySet, TextField
from django.db.models.functions import Cast
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from msgnode.identity.bindings import key_name
from msgnode.identity.provider.revocation import end_browser_sessions, end_logins
from msgnode.identity.provider.token_claims import subject_of, user_url_of
from msgnode.models import (
    AddressOwner,
    Alarm,
    AlarmNotice,
    AlarmRule,
    Allocation,
    AuditEntry,
    Ban,
    ComponentStatus,
    DeviceOutlet,
    IdentityBinding,
    LegacyAddress,
    OperatorIdentity,
    PushEndpoint,
    Revocation,
    SecondFactor,
    SentInvitation,
    Session,
    Subscription,
)
from msgnode.qos.models import Reservation
from msgnode.scripts import store as scripts
from msgnode.storage.deletion import delete_with_dependents
from msgnode.traffic.pseudonyms import pseudonym
from policies.models import DecisionEntry, NamedList
from registry import api as registry

from .audit import fields_of
from .auditing import SECRET
from .operator_actions import end_sessions

ERASED = "(erased)"
_PORTION = 500
_LOG_SECONDS = 10.0
_HIDDEN = (
    SECRET
    | {"token", "token_checksum"}
    | {"document", "lists"}  # what an author of policies has written is about the node
)
_AUTHORS = {
    "msgnode.Ban": "created_by",
    "msgnode.AlarmRule": "created_by",
    "msgnode.Revocation": "revoked_by",
    "msgnode.ApiKey": "created_by",
}
"""The rows that name the operator who made them, with the column."""
_NAMING: tuple[tuple[type[Model], str], ...] = (
    (Session, "identity__user_url"),
    (DecisionEntry, "username"),
    (AuditEntry, "actor"),
    (AuditEntry, "object"),
    (Ban, "value"),
    (Alarm, "subject"),
)
"""Where user URLs are stored besides the registry, which finds them by their last part."""


@dataclass(frozen=True)
class Names:
    """All names of one person that the node knows, by kind."""

    user_names: frozenset[str] = frozenset()
    emails: frozenset[str] = frozenset()
    user_urls: frozenset[str] = frozenset()
    guids: frozenset[str] = frozenset()
    subjects: frozenset[tuple[str, str]] = frozenset()  # issuer, subject
    accounts: tuple[Any, ...] = field(default=(), repr=False)

    @property
    def texts(self) -> frozenset[str]:
        """Every text that may name the person where user names are stored."""
        return self.user_names | self.emails | self.user_urls | self.guids

    @property
    def texts_and_subjects(self) -> frozenset[str]:
        """These, and the person's subjects at whichever issuer."""
        return self.texts | {subject for _, subject in self.subjects}

    def __bool__(self) -> bool:
        return bool(self.texts or self.subjects)


def names_of(text: str, issuer: str = "") -> Names:
    """The names that follow from one. `issuer`: the text is a subject there."""
    accounts = get_user_model().objects
    ours = settings.PROVIDER["ISSUER"]
    found = Q(username=text) | Q(email__iexact=text)
    if text.startswith("user://"):
        name = text.split("/", 3)[-1]
        found |= Q(username=name) | Q(email__iexact=name)
    if issuer == ours and text.isdecimal():
        found |= Q(pk=int(text))
    elif issuer:
        found = Q(pk__in=())
    people = tuple(accounts.filter(found)[:50])
    emails = {person.email for person in people if person.email}
    subjects = {(ours, subject_of(person)) for person in people}
    if issuer:
        subjects.add((issuer, text))
    elif "@" in text and "://" not in text:
        emails.add(text)
    urls = {user_url_of(person) for person in people}
    urls |= {f"user://{email.rpartition('@')[2]}/{email}" for email in emails}
    if text.startswith("user://"):
        urls.add(text)
    guids = {text} if text.startswith(("user-guid://", "user-uuid://")) else set()
    if not issuer:
        urls |= _urls_that_end_with(emails)
        subjects |= _subjects_known_as(emails, urls, guids)
    return Names(
        frozenset(person.get_username() for person in people),
        frozenset(emails),
        frozenset(urls),
        frozenset(guids),
        frozenset(subjects),
        people,
    )


def _urls_that_end_with(emails: Iterable[str]) -> set[str]:
    """The user URLs `user://<any identity provider>/<mail address>` that are stored anywhere."""
    found: set[str] = set()
    for model, column in _NAMING:
        rows = model._default_manager.filter(**{f"{column}__startswith": "user://"})
        for email in emails:
            ending = rows.filter(**{f"{column}__iendswith": f"/{email}"}).order_by()
            found.update(ending.values_list(column, flat=True).distinct())
    return found


def _subjects_known_as(
    emails: Iterable[str], urls: Iterable[str], guids: Iterable[str]
) -> set[tuple[str, str]]:
    """The issuer and subject of sessions whose verified identity has one of these names."""
    named = Q(pk__in=())
    for email in emails:
        named |= Q(identity__username__iexact=email)
    for url in urls:
        named |= Q(identity__user_url__iexact=url)
    for guid in guids:
        named |= Q(identity__guid=guid)
    identified = Session.objects.exclude(subject="").filter(named).order_by()
    return set(identified.values_list("issuer", "subject").distinct())


def export(names: Names) -> dict[str, Any]:
    """Everything that is stored, as plain values by kind of row."""
    sessions = sessions_of(names)
    holding = {"session__in": sessions}
    rows: dict[str, Iterable[Model]] = {
        "sessions": sessions,
        "allocations": Allocation.objects.filter(**holding),
        "subscriptions": Subscription.objects.filter(**holding),
        "device_outlets": DeviceOutlet.objects.filter(**holding),
        "token_bindings": _bindings(names, sessions),
        "address_owners": AddressOwner.objects.filter(_subjects(names)),
        "push_endpoints": _endpoints(names),
        "legacy_addresses": _at_networks(names),
        "sent_invitations": _invitations(names),
        "revocations": Revocation.objects.filter(_subjects(names)),
        "bans": Ban.objects.filter(kind=Ban.Kind.SUBJECT, value__in=names.texts_and_subjects),
        "decisions": DecisionEntry.objects.filter(_decisions(names, sessions)),
        "audit": AuditEntry.objects.filter(
            Q(actor__in=names.texts)
            | Q(object__in=_audited(names, sessions))
            | Q(pk__in=_audited_values(names).values("pk"))
        ),
        "failed_logins": AccessAttempt.objects.filter(username__in=names.user_names),
        "tokens": get_access_token_model().objects.filter(user__in=names.accounts),
        "refresh_tokens": get_refresh_token_model().objects.filter(user__in=names.accounts),
        "second_factors": SecondFactor.objects.filter(user__in=names.accounts).exclude(
            kind=SecondFactor.Kind.RECOVERY
        ),
        "operator_identities": OperatorIdentity.objects.filter(user__in=names.accounts),
        "alarms": _alarms(names, sessions),
        "console_history": _history(names),
        "named_lists": _lists(names),
        "alarm_rules": _mailed(names),
        "alarm_notices": AlarmNotice.objects.filter(target__in=names.emails),
        "reservations": _reservations(names, sessions),
        "components": _errors_that_name(names, sessions),
    }
    rows |= _authored(names)
    told: dict[str, Any] = {kind: [_plain(row) for row in found] for kind, found in rows.items()}
    told["account"] = [_plain(person) for person in names.accounts]
    told["registry"] = registry.person_export(names.user_urls, names.guids)
    shown = scripts.shown_of(_shown_texts(names, sessions))
    told["connectors"] = [{"port": port, "shown": lines} for port, lines in shown.items()]
    told["record_pseudonyms"] = _pseudonyms(names, told)
    return told


def count(told: Mapping[str, Any]) -> dict[str, int]:
    """How many rows of each kind an export has."""
    numbers = {kind: len(rows) for kind, rows in told.items() if kind != "record_pseudonyms"}
    numbers["registry"] = sum(len(rows) for rows in told.get("registry", {}).values())
    return numbers


def erase(names: Names, actor: str) -> dict[str, int]:
    """Delete it, or remove the name if the row is about something else; return how many of each.

    Sessions are ended first, so that nothing is written again. The audit keeps that somebody did
    something, without who: it is evidence towards others.
    """
    sessions = sessions_of(names)
    audited = _audited(names, sessions)
    live = sessions.exclude(state=Session.State.CLOSED)
    done = {"sessions ended": end_sessions(live.iterator(), actor, "erased", may_return=False)}
    done["decisions"] = _delete(DecisionEntry.objects.filter(_decisions(names, sessions)))
    done["bindings of tokens"] = _delete(_bindings(names, sessions))
    done["alarms"] = _delete(_alarms(names, sessions))
    errors = [each.pk for each in _errors_that_name(names, sessions)]
    done["components"] = ComponentStatus.objects.filter(pk__in=errors).update(last_error="")
    done["connectors"] = scripts.forget(scripts.shown_of(_shown_texts(names, sessions)))
    done["reservations without the name"] = _reservations(names, sessions).update(
        issuer="", subject="", client_name="", about="", runtime_url=""
    )  # what was carried for the customer stays
    done["sessions"] = _delete(sessions)
    done["push endpoints"] = _delete(_endpoints(names))
    done["contacts in legacy networks"] = _delete(_at_networks(names))
    done["invitations"] = _delete(_invitations(names))
    done["address owners"] = _delete(AddressOwner.objects.filter(_subjects(names)))
    done["failed log-ins"] = _delete(AccessAttempt.objects.filter(username__in=names.user_names))
    done["registry"] = registry.person_erase(names.user_urls, names.guids)
    done["alarm notices"] = _delete(AlarmNotice.objects.filter(target__in=names.emails))
    done["alarm rules"] = sum(_mail_no_more(rule, names) for rule in _mailed(names))
    done["console history"] = _delete(_history(names))
    authored = _authored(names).items()
    done["authors"] = sum(rows.update(**{_AUTHORS[kind]: ERASED}) for kind, rows in authored)
    for person in names.accounts:
        end_logins(person, close=True)
        end_browser_sessions(person)
    done["accounts"] = len(names.accounts)
    for person in names.accounts:
        person.delete()
    by = AuditEntry.objects.filter(actor__in=names.texts).update(actor=ERASED)
    about = AuditEntry.objects.filter(object__in=audited)
    changed = about.update(object=ERASED, before={}, after={})
    changed += _audited_values(names).update(before={}, after={})
    done["audit entries without the name"] = by + changed
    return done


def forget_deleted_rows() -> None:
    """Have deleted rows overwritten in SQLite's file from now on; PostgreSQL does it by VACUUM."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA secure_delete = ON")


def empty_the_log() -> bool:
    """Write SQLite's write-ahead log into its file and empty it, for deleted rows are in it.

    It is tried for some seconds, because who reads the database keeps it.

    Returns:
        Whether nothing is left in it.
    """
    if connection.vendor != "sqlite" or connection.in_atomic_block:
        return True
    until = time.monotonic() + _LOG_SECONDS
    while True:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if not cursor.fetchone()[0]:
                return True
        if time.monotonic() > until:
            return False


def sessions_of(names: Names) -> QuerySet[Session]:
    """The sessions that were bound to one of a person's names.

    And those without an identity whose runtime URL names the person's mail address.
    """
    unnamed = Q(subject="", runtime_url__in=_runtimes_that_name(names))
    return Session.objects.filter(_subjects(names) | unnamed).order_by("pk")


def _runtimes_that_name(names: Names) -> set[str]:
    """The URLs of runtimes without an identity that contain the person's mail address."""
    found: set[str] = set()
    for email in names.emails:
        for spelling in {email, quote(email, safe="")}:
            rows = Session.objects.filter(subject="", runtime_url__icontains=spelling).order_by()
            whole = re.compile(rf"(?<![\w.+-]){re.escape(spelling)}(?![\w.-])", re.IGNORECASE)
            urls = rows.values_list("runtime_url", flat=True).distinct()
            found.update(url for url in urls if whole.search(url))
    return found


def _errors_that_name(names: Names, sessions: QuerySet[Session]) -> list[ComponentStatus]:
    """What components last failed with; versions before this one wrote names into it."""
    texts = _shown_texts(names, sessions)
    rows = ComponentStatus.objects.exclude(last_error="")
    return [each for each in rows if any(text in each.last_error for text in texts)]


def _shown_texts(names: Names, sessions: QuerySet[Session]) -> set[str]:
    """What names the person within a longer text."""
    return {*names.emails, *names.user_urls, *names.guids, *_own_runtimes(names, sessions)}


def _audited_values(names: Names) -> QuerySet[AuditEntry]:
    """Audit entries about something else whose values name the person's mail address."""
    found = Q(pk__in=())
    for email in names.emails:
        found |= Q(_before__icontains=email) | Q(_after__icontains=email)
    texts = {"_before": Cast("before", TextField()), "_after": Cast("after", TextField())}
    return AuditEntry.objects.alias(**texts).filter(found)


def _subjects(names: Names) -> Q:
    found = Q(pk__in=())
    for issuer, subject in names.subjects:
        found |= Q(issuer=issuer, subject=subject)
    return found


def _own_runtimes(names: Names, sessions: QuerySet[Session]) -> QuerySet[Session, str]:
    """The URLs of runtimes where nobody else has had a session."""
    there = Session.objects.filter(runtime_url=OuterRef("runtime_url")).order_by()
    others = there.exclude(subject="").exclude(_subjects(names))
    return sessions.exclude(Exists(others)).values_list("runtime_url", flat=True)


def _audited(names: Names, sessions: QuerySet[Session]) -> set[str]:
    """The possible subjects of audit entries: the person, sessions and what they hold."""
    addresses = Allocation.objects.filter(session__in=sessions).values_list("address", flat=True)
    return {*names.texts, *_own_runtimes(names, sessions), *addresses}


def _bindings(names: Names, sessions: QuerySet[Session]) -> QuerySet[IdentityBinding]:
    """The bindings of the person's runtimes. Whose a token was cannot be told by its digest."""
    urls = sessions.values_list("runtime_url", flat=True).distinct()
    keys = [key_name(url, *subject) for url in urls for subject in names.subjects]
    return IdentityBinding.objects.filter(
        Q(runtime_url__in=_own_runtimes(names, sessions)) | Q(pk__in=keys)
    )


def _endpoints(names: Names) -> QuerySet[PushEndpoint]:
    """Where others may invite the person; the invitations go with them."""
    return PushEndpoint.objects.filter(subject__in=_own_subjects(names))


def _at_networks(names: Names) -> QuerySet[LegacyAddress]:
    """Who in networks of other protocols sees whether the person is there."""
    return LegacyAddress.objects.filter(here__in=names.user_urls)


def _invitations(names: Names) -> QuerySet[SentInvitation]:
    """The person's invitations; their guests may no longer speak."""
    return SentInvitation.objects.filter(subject__in=_own_subjects(names))


def _own_subjects(names: Names) -> list[str]:
    """The person's subjects at this node's own provider."""
    ours = settings.PROVIDER["ISSUER"]
    return [subject for issuer, subject in names.subjects if issuer == ours]


def _alarms(names: Names, sessions: QuerySet[Session]) -> QuerySet[Alarm]:
    """Those about the person's runtimes, or about the person as a sender."""
    found = Q(subject__in=names.texts_and_subjects)
    found |= Q(subject__in=_own_runtimes(names, sessions))
    for email in names.emails:
        found |= Q(text__icontains=email)
    return Alarm.objects.filter(found)


def _reservations(names: Names, sessions: QuerySet[Session]) -> QuerySet[Reservation]:
    """Bandwidth that the person's runtimes have reserved."""
    unnamed = Q(subject="", runtime_url__in=_own_runtimes(names, sessions))
    return Reservation.objects.filter(
        _subjects(names) | Q(subject="", session_id__in=sessions.values("pk")) | unnamed
    )


def _history(names: Names) -> QuerySet[LogEntry]:
    """The console's own history of the account, and of its actions."""
    account = ContentType.objects.get_for_model(get_user_model())
    ids = [str(person.pk) for person in names.accounts]
    about = Q(content_type=account, object_id__in=ids)
    return LogEntry.objects.filter(about | Q(user__in=names.accounts))


def _lists(names: Names) -> list[NamedList]:
    """Lists of policies that name the person; operators change them, nothing else does."""
    texts = names.texts_and_subjects
    return [each for each in NamedList.objects.all() if texts & set(each.texts())]


def _mailed(names: Names) -> list[AlarmRule]:
    """Alarm rules that mail the person."""
    return [each for each in AlarmRule.objects.all() if names.emails & set(each.mail_to.split())]


def _mail_no_more(rule: AlarmRule, names: Names) -> int:
    rule.mail_to = "\n".join(each for each in rule.mail_to.split() if each not in names.emails)
    rule.save(update_fields=["mail_to"])
    return 1


def _authored(names: Names) -> dict[str, QuerySet[Any]]:
    """Rows made by the operator, by kind, if they say who made them."""
    return {
        kind: apps.get_model(kind).objects.filter(**{f"{column}__in": names.texts})
        for kind, column in _AUTHORS.items()
    }


def _decisions(names: Names, sessions: QuerySet[Session]) -> Q:
    ids = [str(pk) for pk in sessions.values_list("pk", flat=True)]
    ids += [pk.replace("-", "") for pk in ids]
    return Q(username__in=names.texts) | Q(session__in=ids)


def _plain(row: Model) -> dict[str, Any]:
    return {name: value for name, value in fields_of(row).items() if name not in _HIDDEN}


def _pseudonyms(names: Names, told: Mapping[str, Any]) -> dict[str, str]:
    key = str(settings.RECORD["PSEUDONYM_KEY"]).encode()
    held = {row["address"] for row in (*told["allocations"], *told["subscriptions"])}
    addresses = held | {row["runtime_url"] for row in told["sessions"]} | names.user_urls
    return {each: pseudonym(each, key) if key else each for each in sorted(addresses)}


def _delete(rows: QuerySet[Any]) -> int:
    """In portions: SQLite has one writer. How many of the rows themselves there were."""
    number = 0
    while ids := list(rows.order_by("pk").values_list("pk", flat=True)[:_PORTION]):
        delete_with_dependents(rows.model._default_manager.filter(pk__in=ids))
        number += len(ids)
    return number
