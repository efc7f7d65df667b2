"""The policies in the console: edit the draft, publish, look back, and see why.

What is edited is the draft; nothing of it acts until it is published on its own page.
"""

from __future__ import annotations

from . import decisions, draft, versions

__all__ = ["decisions", "draft", "versions"]
