"""The administration point: checks a draft, publishes it, rolls back.

    check    read and compile the draft, run the policies' own tests
    publish  read the draft; check it; number, store and notify the workers in one transaction
    roll back   publish an earlier version again; the draft is not changed

Rules
- A version is a copy: later edits do not change it.
- A draft that cannot be compiled, or whose tests fail, is never published.
- A draft is read in a transaction that keeps nobody from writing, and compiled outside of any:
  SQLite has one writer, for which everybody would wait. What is edited meanwhile is for the next
  version.
- Workers are notified through the node's control outbox in the same transaction, so that a version
  and its notification become visible together.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from policies.enforcement import environment
from policies.enforcement.snapshot import PolicySnapshot, make_snapshot
from policies.engine.language import Lists, PolicyError, Problem
from policies.models import PolicyTest, Version

from .cases import run_case
from .drafts import draft_document, draft_lists, reading

PUBLISHED = "policies.published"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found.

    The draft is fit for publication if there are neither problems nor failures; warnings say what
    is written otherwise in this language.
    """

    problems: tuple[Problem, ...] = ()
    failures: tuple[str, ...] = ()
    passed: int = 0
    snapshot: PolicySnapshot | None = field(default=None, repr=False)
    warnings: tuple[Problem, ...] = ()

    @property
    def is_fit(self) -> bool:
        """Whether it may be published."""
        return not self.problems and not self.failures


class NotFit(Exception):
    """A draft that may not be published; `report` says why."""

    def __init__(self, report: CheckReport) -> None:
        faults = [str(problem) for problem in report.problems] + list(report.failures)
        super().__init__("\n".join(faults))
        self.report = report


class InForce(Exception):
    """A version was to be published again that is the newest."""


class ChangedMeanwhile(Exception):
    """The draft, or the version in force, is no longer what its author was shown."""


def check(document: Sequence[Any], lists: Lists) -> CheckReport:
    """Compile a document and run the active tests against it."""
    warnings: list[Problem] = []
    try:
        snapshot = make_snapshot(document, lists, warnings=warnings)
    except PolicyError as error:
        return CheckReport(problems=tuple(error.problems), warnings=tuple(warnings))
    failures = []
    active = list(PolicyTest.objects.filter(is_active=True))
    for test in active:
        case = {"id": test.name, "node": environment.node_facts(), **test.case}
        result = run_case(case, snapshot.enforced, environment.defaults())
        if result.faults:
            failures.append(f"{test.name}: {'; '.join(result.faults)}")
    passed = len(active) - len(failures)
    return CheckReport((), tuple(failures), passed, snapshot, tuple(warnings))


def check_draft() -> CheckReport:
    """Check what is being edited."""
    return check(draft_document(), draft_lists())


def mark_of_draft() -> str:
    """A mark of what publishing would change: of the draft, and the version in force."""
    return _mark(draft_document(), draft_lists(), current())


def publish(author: Any = None, note: str = "", shown: str = "") -> Version:
    """Publish the draft.

    Args:
        author: the user who publishes it.
        note: what it is for.
        shown: the mark of what the author was shown, "" if nothing was.

    Raises:
        NotFit: it cannot be compiled, or its tests fail.
        ChangedMeanwhile: it is not what was shown, or somebody else publishes at this moment.
    """
    with reading():
        document, lists, newest = draft_document(), draft_lists(), current()
    if shown and shown != _mark(document, lists, newest):
        raise ChangedMeanwhile("the draft has changed, or another version is in force")
    return publish_document(document, lists, author, note, newest)


def roll_back(version: Version, author: Any = None, shown: int | None = None) -> Version:
    """Publish an earlier version again. The draft, and with it the ids of its rules, is kept.

    Args:
        version: the earlier version.
        author: the user who publishes it.
        shown: the number of the version that the author was shown to be in force.

    Raises:
        NotFit: the version cannot be compiled any more.
        InForce: it is the newest already.
        ChangedMeanwhile: another version is in force than was shown, or is published just now.
    """
    newest = current()
    if newest is not None and shown is not None and newest.number != shown:
        raise ChangedMeanwhile(f"version {newest.number} is in force by now")
    if newest is not None and newest.number == version.number:
        raise InForce(f"version {version.number} is in force already")
    note = f"back to version {version.number}"
    return publish_document(version.document, version.lists, author, note, newest, tested=False)


def current() -> Version | None:
    """The version in force."""
    return Version.objects.order_by("-number").first()


def difference(before: Version | None, after: Version | None) -> list[str]:
    """Lines that changed from one version to another (None: nothing; after None: the draft)."""
    old = _lines(before.document, before.lists) if before else []
    if after is None:
        new = _lines(draft_document(), draft_lists())
    else:
        new = _lines(after.document, after.lists)
    return list(difflib.unified_diff(old, new, "before", "after", lineterm="", n=4))


def _mark(document: Sequence[Any], lists: Lists, newest: Version | None) -> str:
    text = json.dumps([newest.number if newest else 0, document, lists], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def publish_document(
    document: list[Any],
    lists: dict[str, Any],
    author: Any,
    note: str,
    newest: Version | None,
    tested: bool = True,
    also: Callable[[], None] | None = None,
) -> Version:
    """Check a document and make it the version that follows `newest`, which was in force before.

    Args:
        document: the sets with their modes.
        lists: the named lists.
        author: the user who publishes it.
        note: what it is for.
        newest: the version that was in force when the document was made.
        tested: whether the tests of the policies must pass.
        also: what is written in the same transaction.

    Raises:
        NotFit: it cannot be compiled, or its tests fail.
        ChangedMeanwhile: somebody else publishes at this moment.
    """
    report = check(document, lists)
    if report.problems or (tested and report.failures):
        raise NotFit(report)
    version = Version(
        number=newest.number + 1 if newest else 1,
        document=document,
        lists=lists,
        note=note[:255],
        author=author,
    )
    outbox = apps.get_model("msgnode", "ControlMessage")
    payload = {"version": version.number}
    try:
        with transaction.atomic():
            version.save()
            outbox.objects.create(kind=PUBLISHED, payload=payload, created_at=Now())
            if also is not None:
                also()
    except IntegrityError:
        text = f"version {version.number} was published by somebody else at this moment"
        raise ChangedMeanwhile(text) from None
    return version


def _lines(document: list[Any], lists: dict[str, Any]) -> list[str]:
    text = json.dumps({"sets": document, "lists": lists}, indent=2, sort_keys=True)
    return text.splitlines()
