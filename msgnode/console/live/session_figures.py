"""What the page of a session is told each second, and the points of its charts."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from msgnode.monitoring.session_watch import Failure, SessionFigures, SessionSample

LENGTH = "session"
"""The one length that the charts of a session have: all seconds that are kept."""


def now_of(told: SessionFigures | None, missing: list[str]) -> dict[str, Any]:
    """The figures of this second.

    Args:
        told: by the worker that has the session, None if none has said so.
        missing: names of workers that did not answer.
    """
    if told is None:
        return {"session": None, "missing": missing}
    return {
        "session": {
            "state": told.state,
            "worker": told.worker,
            "is_held_back": told.is_held_back,
            "is_behind": told.is_behind,
            "totals": dict(
                zip(
                    ("messages_in", "bytes_in", "messages_out", "bytes_out"),
                    told.totals,
                    strict=True,
                )
            ),
            "now": point(told.samples[-1]) if told.samples else None,
            "failures": [_failure(each, told.session) for each in reversed(told.failures)],
        },
        "missing": missing,
    }


def history_of(told: SessionFigures | None) -> list[dict[str, Any]]:
    """The points of the charts: one a second."""
    return [point(sample) for sample in told.samples] if told is not None else []


def point(sample: SessionSample) -> dict[str, Any]:
    """A sample as rates a second."""
    seconds = sample.seconds or 1.0
    return {
        "at": round(sample.at, 1),
        "messages": round(sample.messages_in / seconds, 1),
        "copies": round(sample.messages_out / seconds, 1),
        "bytes_in": round(sample.bytes_in / seconds),
        "bytes_out": round(sample.bytes_out / seconds),
        "failed": round(sample.failed / seconds, 1),
        "waiting": sample.waiting,
    }


def _failure(failure: Failure, session: str) -> dict[str, Any]:
    """A failure, with the way to what explains it: what the rule that refused has decided."""
    url = ""
    if failure.rule:
        decisions = reverse("admin:policies_decisionentry_changelist")
        url = f"{decisions}?{urlencode({'q': failure.rule, 'session': session})}"
    return {
        "at": failure.at,
        "type": failure.type,
        "to": failure.to,
        "outcome": failure.outcome,
        "code": failure.code,
        "rule": failure.rule,
        "count": failure.count,
        "url": url,
    }
