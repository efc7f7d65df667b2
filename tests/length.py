"""How much a test does of what could go on for long: enough to fail, or the full length.

`FULL_LENGTH=1 make test-long` is for a night; the usual length is for every change.
"""

from __future__ import annotations

import os


def length(usual: int, full: int) -> int:
    """So many times, messages, rows or seconds; `full` where FULL_LENGTH is set."""
    return full if os.environ.get("FULL_LENGTH") else usual
