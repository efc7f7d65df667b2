"""Describes why a node does not start, in one line for the person who started it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

_READ = 64 * 1024


class StartFailed(Exception):
    """The node cannot start.

    Args:
        text: names the cause.
        remedy: what to do, in a sentence; "" where the text says it.
    """

    def __init__(self, text: str, remedy: str = "") -> None:
        super().__init__(f"{text}. {remedy}" if remedy else text)
        self.text = text
        self.remedy = remedy


def cause_in(log: Path, offset: int) -> str:
    """The last error in a log since `offset`, else its last line."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            start = offset if offset <= size else 0  # a shorter file has been rotated
            file.seek(max(start, size - _READ))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    last = ""
    for line in reversed(lines):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            text, is_error = str(record["message"]), record["level"] in ("ERROR", "CRITICAL")
            trace = str(record.get("trace", "")).strip()
        except (ValueError, KeyError, TypeError, AttributeError):
            text, is_error, trace = line.strip(), False, ""
        if is_error:
            return f"{text}: {trace.splitlines()[-1]}" if trace else text
        last = last or text
    return last


def without_password(url: str) -> str:
    """A URL without its password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return parts._replace(netloc=f"{parts.username}:…@{parts.netloc.rpartition('@')[2]}").geturl()
