"""Constants of reports that pages use as well, without Spark, which a node does not load."""

from __future__ import annotations

FAILED = ("undeliverable", "blocked", "refused", "dropped")
EFFECTS = {
    "permitted": "permit", "denied": "deny", "not_applicable": "notApplicable",
    "indeterminate": "indeterminate",
}  # fmt: skip
"""Columns of the table by hour, and the decisions of the policies that they count."""
SESSION_EVENTS = ("opened", "resumed", "lost", "ended")
RESERVATION_EVENTS = {
    "reserved": "reserved", "refused": "reservation-refused", "ended": "reservation-ended",
}  # fmt: skip
"""Columns of the table of reservations by hour, and the events that they count."""
