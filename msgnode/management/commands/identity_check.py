"""`manage.py identity_check`: is everybody named by what the issuers vouch for?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import CommandParser

from msgnode import models
from msgnode.console.command_base import Tool, not_as_it_should_be
from msgnode.core.identity import Identity
from msgnode.identity import issuer_store
from msgnode.identity.provider.token_claims import name_fault, subject_of, user_url_of
from msgnode.sessions.store import SessionStore
from registry import api as registry

Known = dict[str, list[Identity]]
"""Mark of a subject -> the identities of it whose names its issuer vouches for."""


class Command(Tool):
    help = (
        "List by which claim each issuer names its users, and what was registered under a name "
        "that no issuer vouches for: by versions that took unverified addresses, before an issuer "
        "was changed, or by a subject whose session is not known any more. --remove deletes those "
        "entries of the registry; their runtimes can register again under names of their own. "
        "Exit status 1 if there is something."
    )
    example = "  manage.py identity_check\n  manage.py identity_check --remove"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--remove", action="store_true", help="delete such registry entries")

    def handle(self, *_args: Any, **options: Any) -> None:
        book, _ = issuer_store.read()
        known, subjects = _identities(book)
        registered = list(registry.named_by_subjects())
        doubtful = [each for each in registered if not _is_vouched(each, known)]
        told: dict[str, Any] = {
            "issuers": [
                {"issuer": each.url, "named_by": each.name_claim or "verified e-mail address"}
                for each in book.all
            ],
            "entries": [
                {"url": each.url, "user": each.user, "subject": subjects.get(each.owner, "unknown")}
                for each in doubtful
            ],
            "several_subjects": _shared(registered, subjects),
            "accounts": _accounts(),
            "removed": registry.remove(doubtful) if options["remove"] else 0,
        }
        self.say(told, _lines(told))
        left = [] if options["remove"] else told["entries"]
        found = len(left) + len(told["several_subjects"]) + len(told["accounts"])
        if found:
            raise not_as_it_should_be(f"{found} names are not vouched for, or not of one person.")


def _lines(told: dict[str, Any]) -> Iterator[str]:
    for each in told["issuers"]:
        yield f"{each['issuer']} names its users by: {each['named_by']}, else sub"
    for each in told["entries"]:
        yield (
            f"Registry: {each['url']} is registered as {each['user']}, for which no issuer "
            f"vouches (subject: {each['subject']})"
        )
    for each in told["several_subjects"]:
        listed = ", ".join(each["subjects"])
        yield f"Registry: {each['user']} has entries of several: {listed}"
    for each in told["accounts"]:
        yield f"Account {each['username']}: {each['fault']}"
    if told["removed"]:
        yield f"{told['removed']} entries of the registry were removed."


def _identities(book: Any) -> tuple[Known, dict[str, str]]:
    """What issuers vouch for, by mark; and the subjects behind the marks."""
    known: Known = defaultdict(list)
    subjects: dict[str, str] = {}
    own = settings.PROVIDER["ISSUER"]
    rows = models.Session.objects.exclude(subject="").exclude(issuer=own)
    for row in rows.iterator(chunk_size=2000):
        mark = registry.subject_mark(row.issuer, row.subject)
        subjects[mark] = f"{row.subject} of {row.issuer}"
        identity, issuer = SessionStore.identity_of(row), book.named(row.issuer)
        if identity is not None and issuer is not None and issuer.names_still(identity):
            known[mark].append(identity)
    for user in get_user_model().objects.iterator(chunk_size=2000):
        mark = registry.subject_mark(own, subject_of(user))
        subjects[mark] = f"{user.get_username()} of {own}"
        known[mark].append(Identity(own, subject_of(user), user_url=user_url_of(user)))
    return known, subjects


def _is_vouched(entry: registry.Registered, known: Known) -> bool:
    return any(each.is_known_as(entry.user) for each in known.get(entry.owner, ()))


def _shared(
    registered: Iterable[registry.Registered], subjects: dict[str, str]
) -> list[dict[str, Any]]:
    """User ids under which several subjects are registered."""
    owners: dict[str, set[str]] = defaultdict(set)
    for each in registered:
        owners[each.user.lower()].add(subjects.get(each.owner, "unknown"))
    return [
        {"user": user, "subjects": sorted(of)} for user, of in sorted(owners.items()) if len(of) > 1
    ]


def _accounts() -> list[dict[str, str]]:
    """Accounts of the node's own provider that have no name, or not the one they look like."""
    users = get_user_model().objects.order_by("pk").iterator(chunk_size=2000)
    faults = ((user.get_username(), name_fault(user)) for user in users)
    return [{"username": name, "fault": fault} for name, fault in faults if fault]
