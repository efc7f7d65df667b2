"""Descriptions of sessions (SDP) as a connection object has them, with their limits. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgnode.core.errors import BadMessage

MAX_SDP_BYTES, MAX_MEDIA, MAX_CANDIDATES = 64 * 1024, 16, 32
_MAX_CANDIDATE = 1_000
DESCRIPTION, CANDIDATES = "connectionDescription", "iceCandidates"


class Candidate(NamedTuple):
    """A candidate of ICE: `candidate:…`, and which of the media it is for."""

    candidate: str
    mid: str
    line: int

    @property
    def value(self) -> dict[str, Any]:
        """It as a runtime has it."""
        said = {"candidate": self.candidate, "sdpMid": self.mid, "sdpMLineIndex": self.line}
        return {"type": "candidate", **said}


class Description(NamedTuple):
    """A description of a session: `offer` or `answer`; candidates that are not in its text."""

    type: str
    sdp: str
    candidates: tuple[Candidate, ...] = ()

    @property
    def value(self) -> dict[str, Any]:
        """It as a connection object has it."""
        return {
            DESCRIPTION: {"type": self.type, "sdp": self.sdp},
            CANDIDATES: [each.value for each in self.candidates],
        }

    @property
    def whole_sdp(self) -> str:
        """Its text with all candidates in it, for a network that takes none later."""
        if not self.candidates:
            return self.sdp
        head, *media = self.sdp.replace("\r\n", "\n").replace("\n", "\r\n").split("\r\nm=")
        for each in self.candidates:
            if 0 <= each.line < len(media):
                media[each.line] = media[each.line].rstrip("\r\n") + f"\r\na={each.candidate}"
        return "\r\nm=".join((head, *(each.rstrip("\r\n") for each in media))) + "\r\n"


def description_in(value: Mapping[str, Any]) -> Description:
    """The description in the value of a connection object.

    Raises:
        BadMessage: it is none, or beyond a limit.
    """
    said = value.get(DESCRIPTION)
    type_ = said.get("type") if isinstance(said, dict) else None
    sdp = said.get("sdp") if isinstance(said, dict) else None
    if type_ not in ("offer", "answer") or not isinstance(sdp, str):
        raise BadMessage('A description is {"type": "offer" or "answer", "sdp": "v=0 …"}.')
    if fault := sdp_fault(sdp):
        raise BadMessage(f"The description {fault}.")
    return Description(type_, sdp, candidates_in(value.get(CANDIDATES) or []))


def sdp_fault(sdp: str) -> str:
    r"""Why a text cannot be the description of a session, "" if it can.

    >>> sdp_fault("v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\n"), sdp_fault("hello")
    ('', 'does not begin with v=0')
    """
    if not sdp.startswith("v=0"):
        return "does not begin with v=0"
    if "\0" in sdp:
        return "has a character that it cannot have"
    if len(sdp.encode(errors="replace")) > MAX_SDP_BYTES:
        return f"has more than {MAX_SDP_BYTES:,} bytes"
    if sdp.count("\nm=") > MAX_MEDIA:
        return f"has more than {MAX_MEDIA} media"
    return ""


def candidates_in(value: Any) -> tuple[Candidate, ...]:
    """The candidates in a value: one, or a list of at most 32. Raises BadMessage."""
    several = value if isinstance(value, list) else [value]
    if len(several) > MAX_CANDIDATES:
        raise BadMessage(f"A call may have {MAX_CANDIDATES} candidates beside its description.")
    found = []
    for each in several:
        text = each.get("candidate") if isinstance(each, dict) else None
        if not isinstance(text, str) or len(text) > _MAX_CANDIDATE or not _is_line(text):
            raise BadMessage("A candidate has `candidate`, a text, `sdpMid` and `sdpMLineIndex`.")
        if text:  # an empty one says that there are no more
            mid, line = str(each.get("sdpMid") or "")[:64], each.get("sdpMLineIndex")
            line = line if isinstance(line, int) and 0 <= line < MAX_MEDIA else 0
            found.append(Candidate(text.removeprefix("a="), mid, line))
    return tuple(found)


def _is_line(text: str) -> bool:
    return not any(each in text for each in "\r\n\0")
