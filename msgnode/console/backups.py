"""Backups in the console: made, and checked for a restore, by the Celery worker.

Rules
- One at a time, and no more than KEPT archives, which nobody but the operator deletes.
- A row of its result says what was asked for and how it ended; it is there before the worker is
  told, so that the page can say that nothing has taken it.
- An archive holds secrets and is not sent to a browser. The database of a node that runs is not
  replaced under it: the page has the commands for that.
"""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.decorators import method_decorator

from .audit import note

BACK_UP, CHECK_BACKUP = "msgnode.backup", "msgnode.check_backup"
"""Tasks, of msgnode.tasks."""
MAY = "auth.change_user"
"""The right of administrators: an archive has everything that the node has."""
KEPT = 20
"""Archives that the console makes before some are taken away: each is as large as the database."""
_SHOWN = 10
_WAITS, _RUNS, _DONE = "PENDING", "STARTED", "SUCCESS"  # of celery.states
_UNDER_WAY = (_WAITS, _RUNS)
_LONGEST = timedelta(seconds=settings.CELERY_TASK_TIME_LIMIT)


class BackupsPage:
    """`/admin/backups/`: the archives in DATA_DIR, and what was done to them lately.

    Args:
        send: tells the Celery worker: the name of a task, its arguments, and the id of its result.
    """

    def __init__(self, send: Callable[[str, list[str], str], None]) -> None:
        self._send = send

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Serve the page."""
        return staff_member_required(self._page)(request)

    @method_decorator(permission_required(MAY, raise_exception=True))
    def _page(self, request: HttpRequest) -> HttpResponse:
        if request.method == "POST":
            if fault := self._begin(request, request.POST.get("check", "")):
                messages.error(request, fault)
            return redirect("backups")
        runs = [_told(each) for each in _results().order_by("-id")[:_SHOWN]]
        found = archives()
        there = [each["name"] for each in found]
        checked = [run["archive"] for run in runs if run["has_passed"]]
        wanted = next((name for name in (*checked, *there) if name in there), "")
        context = {
            **admin.site.each_context(request),
            "title": "Backups",
            "folder": _folder(),
            "archives": found,
            "restored": shlex.quote(str(_folder() / wanted)),
            "runs": runs,
            "is_busy": any(run["is_under_way"] for run in runs),
            "has_own_key": settings.OWN_SECRET_KEY is not None,
        }
        return TemplateResponse(request, "console/backups.html", context)

    def _begin(self, request: HttpRequest, checked: str) -> str:
        """Ask for a backup, or for the check of an archive; why not, if not."""
        there = {each["name"] for each in archives()}
        recent = _results().filter(date_created__gt=timezone.now() - _LONGEST)
        if checked and checked not in there:
            return f"There is no archive {checked[:100]} any more."
        if not checked and len(there) >= KEPT:
            return f"There are {len(there)} archives in {_folder()}. Move or delete some first."
        if recent.filter(status__in=_UNDER_WAY).exists():
            return "Another one is under way."
        task, id_ = CHECK_BACKUP if checked else BACK_UP, str(uuid.uuid4())
        row = recent.create(task_id=id_, task_name=task, status=_WAITS)
        try:
            self._send(task, [checked] if checked else [], id_)
        except OSError as fault:
            row.delete()
            return f"The Celery worker was not told: {fault}"
        note(request.user.get_username(), task.removeprefix("msgnode."), checked or "all", {}, {})
        return ""


def archives() -> list[dict[str, Any]]:
    """The archives in DATA_DIR, the newest first: their names, sizes and times."""
    found = []
    for path in _folder().glob("*.tar.gz"):
        with suppress(FileNotFoundError):  # it was taken away just now
            about = path.stat()
            at = datetime.fromtimestamp(about.st_mtime, UTC)
            found.append({"name": path.name, "bytes": about.st_size, "at": at})
    return sorted(found, key=lambda each: each["at"], reverse=True)


def _folder() -> Path:
    folder: Path = settings.DATA_DIR / "backups"
    return folder


def _results() -> Any:
    results = apps.get_model("django_celery_results.TaskResult")  # celery_apps loads it late
    return results._default_manager.filter(task_name__in=(BACK_UP, CHECK_BACKUP))


def _told(row: Any) -> dict[str, Any]:
    """What was asked for and what came of it, in words."""
    is_under_way = row.status in _UNDER_WAY and row.date_created > timezone.now() - _LONGEST
    is_check = row.task_name == CHECK_BACKUP
    found = _result(row)
    has_ended_well = bool(found) and not found.get("fault")
    if row.status == _WAITS:
        said = "waits for the Celery worker"
    elif row.status == _RUNS:
        said = "is under way"
    elif has_ended_well:
        number = sum(found["rows"].values())
        said = f"{'can be restored' if is_check else 'made'}: {number:,} rows"
    else:
        said = f"failed: {found.get('fault') or 'the log of the Celery worker says why'}"
    return {
        "at": row.date_created, "what": "check" if is_check else "backup", "said": said,
        "archive": Path(found.get("archive", "")).name, "is_under_way": is_under_way,
        "has_passed": is_check and has_ended_well,
    }  # fmt: skip


def _result(row: Any) -> dict[str, Any]:
    """What the task returned; nothing while it has not, or if it was ended."""
    found = json.loads(row.result or "null") if row.status == _DONE else None
    return found if isinstance(found, dict) else {}
