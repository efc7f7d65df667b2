"""Structured logs: one JSON object per line, with tokens cut out."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime

import msgspec

from msgnode.core.errors import Unavailable
from msgnode.core.faults import FAULTS
from msgnode.core.redaction import cut

_RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.I)
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def masked(text: str) -> str:
    """Text without tokens, and without what could be a session's.

    Tokens and many addresses are random UUIDs, so only the last four characters of any stay.
    """
    return _RANDOM.sub(lambda found: "…" + found[0][-4:], cut(text))


class WithoutKnownTrace(logging.Filter):
    """Leaves the trace out of what Django logs of each request answered 503.

    Faults are counted there, and one trace in a while is logged with them: a database that is away
    must not fill the log.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass."""
        if getattr(record, "status_code", None) == Unavailable.code:
            record.exc_info = None
        return True


class UnknownHosts(logging.Filter):
    """Counts requests for a host that ALLOWED_HOSTS does not name, and logs few of them.

    Django logs each as an error, and anybody who scans addresses sends many.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Let no record pass."""
        request = getattr(record, "request", None)
        source = request.META.get("REMOTE_ADDR", "") if request is not None else ""
        FAULTS.refuse("request", f"{record.getMessage()[:300]} (from {source})")
        return False


class JsonFormatter(logging.Formatter):
    """time, level, logger, message, whatever came in `extra`, and the trace of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON, without tokens."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": masked(record.getMessage()),
        }
        for key, value in vars(record).items():
            if key not in _OWN and not key.startswith("_"):
                line[key] = masked(str(value))
        if record.exc_info:
            line["trace"] = masked(self.formatException(record.exc_info))
        return msgspec.json.encode(line).decode()
