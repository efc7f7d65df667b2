"""What the columns of reports count, as jobs and pages name it. Pure, data only."""

from __future__ import annotations

FAILED = ("undeliverable", "blocked", "refused", "dropped")
"""Outcomes of messages that did not arrive."""
EFFECTS = {
    "permitted": "permit", "denied": "deny", "not_applicable": "notApplicable",
    "indeterminate": "indeterminate",
}  # fmt: skip
"""Columns of the table by hour, and the decisions of the policies that they count."""
SESSION_EVENTS = ("opened", "resumed", "lost", "ended")
"""Steps in the life of a session."""
