"""What can be wrong with a GUID, its words or its record."""

from __future__ import annotations


class GraphError(Exception):
    """The words are no such words, or a registry refuses, lies or does not answer.

    Attributes:
        code: 400 the words or a value are not good, 404 no record, 408 no answer, 409 somebody else
            was faster, or the record is older than one seen before, 410 revoked or timed out, 502
            the registry's answer proves nothing; else the registry's own.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
