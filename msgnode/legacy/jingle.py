"""Descriptions of sessions in Jingle (XEP-0167, 0176, 0293, 0294, 0320, 0338, 0339) and in SDP.

    a=group                        <group/>
    m= with a=mid, direction       <content name senders/>
    rtpmap, fmtp, rtcp-fb, extmap  <payload-type/>, <parameter/>, <rtcp-fb/>, <rtp-hdrext/>
    ssrc, ssrc-group, msid         <source/>, <ssrc-group/>, <stream/>
    ice-*, fingerprint, candidate  <transport/>, <fingerprint/>, <candidate/>
    sctp-port (data channels)      <sctpmap/>

Rules
- What has no element there is left out: the rest is a description without it.
- A text from XML becomes one line of SDP at most: no control characters, 200 characters; numbers
  are read as such. Contents, payload types and candidates are counted.
- A medium that is refused has port 0 here, and no content there.
"""

from __future__ import annotations

import re
from binascii import crc32
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgnode.core.errors import BadMessage

from .descriptions import MAX_CANDIDATES, MAX_MEDIA, Candidate, Description
from .xmpp_stream import Element, tag, text_of

JINGLE = "urn:xmpp:jingle:1"
RTP = "urn:xmpp:jingle:apps:rtp:1"
RTP_INFO = "urn:xmpp:jingle:apps:rtp:info:1"
ICE = "urn:xmpp:jingle:transports:ice-udp:1"
DTLS = "urn:xmpp:jingle:apps:dtls:0"
_FEEDBACK = "urn:xmpp:jingle:apps:rtp:rtcp-fb:0"
_HEADERS = "urn:xmpp:jingle:apps:rtp:rtp-hdrext:0"
_SOURCES = "urn:xmpp:jingle:apps:rtp:ssma:0"
_STREAMS = "urn:xmpp:jingle:apps:rtp:msid:0"
_GROUPS = "urn:xmpp:jingle:apps:grouping:0"
_SCTP = "urn:xmpp:jingle:transports:dtls-sctp:1"
FEATURES = (
    JINGLE, RTP, "urn:xmpp:jingle:apps:rtp:audio", "urn:xmpp:jingle:apps:rtp:video", ICE, DTLS,
    _FEEDBACK, _HEADERS, _SOURCES, _GROUPS, _SCTP,
)  # fmt: skip

MAX_PAYLOADS, MAX_LINES, MAX_VALUE, MAX_SSRC = 64, 100, 200, 2**32 - 1
_SESSION_LEVEL = ("ice-ufrag", "ice-pwd", "fingerprint", "setup")
_DIRECTIONS = ("sendrecv", "sendonly", "recvonly", "inactive")
_TOKEN = re.compile(r"[\w!#$%&'*+.^`{|}~-]+", re.ASCII)
_CANDIDATE = re.compile(
    r"candidate:(?P<foundation>\S{1,32}) (?P<component>\d{1,3}) (?P<protocol>\w{1,8}) "
    r"(?P<priority>\d{1,10}) (?P<ip>\S{1,255}) (?P<port>\d{1,5}) typ (?P<type>\w{1,8})(?P<rest>.*)"
)


class Part(NamedTuple):
    """One medium of an SDP: the words of its `m=`, and its attributes in order."""

    kind: str
    port: str
    protocol: str
    formats: list[str]
    attributes: list[tuple[str, str]]

    def all(self, name: str) -> list[str]:
        """The values of an attribute."""
        return [value for key, value in self.attributes if key == name]

    def first(self, name: str) -> str:
        """The first value of an attribute, "" if it has none."""
        return next(iter(self.all(name)), "")

    @property
    def direction(self) -> str:
        """Who sends."""
        return next((key for key, _ in self.attributes if key in _DIRECTIONS), "sendrecv")


def parts_of(sdp: str) -> tuple[list[tuple[str, str]], list[Part]]:
    """The attributes of a session, and its media. Raises BadMessage."""
    session: list[tuple[str, str]] = []
    parts: list[Part] = []
    for line in sdp.splitlines():
        if line.startswith("m="):
            words = line[2:].split()
            if len(words) < 4:
                raise BadMessage(f"The description has a medium without formats: {line[:80]}")
            parts.append(Part(words[0], words[1], words[2], words[3:], []))
        elif line.startswith("a="):
            name, _, value = line[2:].partition(":")
            (parts[-1].attributes if parts else session).append((name, value))
    if not parts or len(parts) > MAX_MEDIA:
        raise BadMessage(f"A description has at least one medium, and at most {MAX_MEDIA}.")
    for number, part in enumerate(parts):
        known = {name for name, _ in part.attributes}
        part.attributes.extend(
            each for each in session if each[0] in _SESSION_LEVEL and each[0] not in known
        )
        if "mid" not in known:
            part.attributes.append(("mid", str(number)))
    return session, parts


# --- SDP to Jingle --------------------------------------------------------------------------------


def to_jingle(description: Description, by: str) -> list[str]:
    """The elements of a description.

    Args:
        description: the description.
        by: whose it is, `initiator` or `responder` of the session.

    Raises:
        BadMessage: it is none.
    """
    session, parts = parts_of(description.sdp)
    made = []
    for number, part in enumerate(parts):
        if part.port == "0" and "bundle-only" not in dict(part.attributes):
            continue
        late = [each.candidate for each in description.candidates if each.line == number]
        inside = (_rtp(part, by), _transport(part, late)) if part.kind != "application" else (
            _transport(part, late),
        )  # fmt: skip
        made.append(_content(part.first("mid"), _senders(part.direction, by), *inside))
    if not made:
        raise BadMessage("All media of the description are refused.")
    for name, value in session:
        semantics, *mids = value.split() if name == "group" and value else ("", "")
        if semantics:
            named = [tag("content", {"name": mid}) for mid in mids]
            made.append(tag("group", {"xmlns": _GROUPS, "semantics": semantics}, *named))
    return made


def info_of(name: str, ufrag: str, password: str, candidate: Candidate) -> str:
    """A candidate as a content of `transport-info`."""
    inside = _candidate(candidate.candidate, 0)
    ice = tag("transport", {"xmlns": ICE, "ufrag": ufrag, "pwd": password}, inside)
    return _content(name, "", ice)


def _content(name: str, senders: str, *inside: str) -> str:
    head = {"creator": "initiator", "name": name, "senders": senders}
    return tag("content", head, *inside)


def _senders(direction: str, by: str) -> str:
    other = "responder" if by == "initiator" else "initiator"
    return {"sendonly": by, "recvonly": other, "inactive": "none"}.get(direction, "both")


def _rtp(part: Part, by: str) -> str:
    inside = ["<rtcp-mux/>"] if ("rtcp-mux", "") in part.attributes else []
    names = dict(_pair(value) for value in part.all("rtpmap"))
    formats: dict[str, list[str]] = {}
    for number, value in map(_pair, part.all("fmtp")):
        formats.setdefault(number, []).extend(map(_parameter, value.split(";")))
    feedback: dict[str, list[str]] = {}
    for number, value in map(_pair, part.all("rtcp-fb")):
        feedback.setdefault(number, []).append(_feedback(value))
    inside += feedback.get("*", [])
    for number in part.formats:
        name, _, rate = names.get(number, "").partition("/")
        clock, _, channels = rate.partition("/")
        head = {"id": number, "name": name, "clockrate": clock,
                "channels": channels if channels != "1" else ""}  # fmt: skip
        more = (*formats.get(number, ()), *feedback.get(number, ()))
        inside.append(tag("payload-type", head, *more))
    for value in part.all("extmap"):
        number, uri = _pair(value)
        id_, _, direction = number.partition("/")
        senders = _senders(direction, by) if direction else ""
        head = {"xmlns": _HEADERS, "id": id_, "uri": uri.split(" ")[0], "senders": senders}
        inside.append(tag("rtp-hdrext", head))
    inside += _sources(part)
    return tag("description", {"xmlns": RTP, "media": part.kind}, *inside)


def _pair(value: str) -> tuple[str, str]:
    name, _, rest = value.partition(" ")
    return name, rest.strip()


def _parameter(text: str) -> str:
    name, equals, value = text.strip().partition("=")
    if not name:
        return ""
    return tag("parameter", {"name": name, "value": value} if equals else {"name": name})


def _feedback(value: str) -> str:
    type_, subtype = _pair(value)
    if type_ == "trr-int":
        return tag("rtcp-fb-trr-int", {"xmlns": _FEEDBACK, "value": subtype})
    return tag("rtcp-fb", {"xmlns": _FEEDBACK, "type": type_, "subtype": subtype})


def _sources(part: Part) -> Iterator[str]:
    sources: dict[str, list[str]] = {}
    for ssrc, value in map(_pair, part.all("ssrc")):
        name, _, text = value.partition(":")
        sources.setdefault(ssrc, []).append(tag("parameter", {"name": name, "value": text}))
    for ssrc, parameters in sources.items():
        yield tag("source", {"xmlns": _SOURCES, "ssrc": ssrc}, *parameters)
    for semantics, value in map(_pair, part.all("ssrc-group")):
        named = [tag("source", {"ssrc": each}) for each in value.split()]
        yield tag("ssrc-group", {"xmlns": _SOURCES, "semantics": semantics}, *named)
    for value in part.all("msid"):
        stream, track = _pair(value)
        yield tag("stream", {"xmlns": _STREAMS, "id": stream, "track": track})


def _transport(part: Part, late: Sequence[str]) -> str:
    inside = []
    for hash_, value in map(_pair, part.all("fingerprint")):
        head = {"xmlns": DTLS, "hash": hash_, "setup": part.first("setup")}
        inside.append(tag("fingerprint", head, text_of(value)))
    if part.kind == "application" and (port := part.first("sctp-port")):
        head = {"xmlns": _SCTP, "number": port, "protocol": part.formats[0], "streams": "1024"}
        inside.append(tag("sctpmap", head))
    found = [f"candidate:{value}" for value in part.all("candidate")] + list(late)
    inside += [_candidate(each, number) for number, each in enumerate(found[:MAX_CANDIDATES])]
    head = {"xmlns": ICE, "ufrag": part.first("ice-ufrag"), "pwd": part.first("ice-pwd")}
    return tag("transport", head, *inside)


def _candidate(text: str, number: int) -> str:
    """A candidate as an element. Raises BadMessage."""
    found = _CANDIDATE.fullmatch(text.strip())
    if found is None:
        raise BadMessage(f"This is no candidate: {text[:80]}")
    words = found["rest"].split()
    rest = dict(zip(words[::2], words[1::2], strict=False))
    named = {name: found[name] for name in _CANDIDATE.groupindex if name != "rest"}
    more = {"generation": rest.get("generation", "0"), "rel-addr": rest.get("raddr", ""),
            "rel-port": rest.get("rport", ""), "tcptype": rest.get("tcptype", ""),
            "id": f"c{number}-{crc32(text.encode()):08x}", "network": "0"}  # fmt: skip
    return tag("candidate", {**named, "protocol": found["protocol"].lower(), **more})


# --- Jingle to SDP --------------------------------------------------------------------------------


def from_jingle(jingle: Element, by: str, offer: str = "") -> Description:
    """The description in a Jingle element.

    Args:
        jingle: a `session-initiate` or `session-accept`.
        by: whose it is, `initiator` or `responder` of the session.
        offer: what it answers, "" if it is an offer itself.

    Raises:
        BadMessage: it is none, or what it has does not belong into one.
    """
    found = {}
    for each in jingle.children:
        if each.name == f"{JINGLE} content":
            found[_value(each.get("name"))] = each
    if not found or len(found) > MAX_MEDIA:
        raise BadMessage(f"A session has at least one content, and at most {MAX_MEDIA}.")
    lines = ["v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=-", "t=0 0"]
    for each in jingle.children:
        if each.name == f"{_GROUPS} group":
            names = [_token(one.get("name")) for one in each.children]
            mids = [name for name in names if name in found]
            lines.append(f"a=group:{_token(each.get('semantics'))} {' '.join(mids)}")
    if not offer:
        for name, content in found.items():
            lines += _medium(name, content, by)
        return Description("offer", "\r\n".join(lines) + "\r\n")
    for part in parts_of(offer)[1]:
        name = part.first("mid")
        if name in found:
            lines += _medium(name, found.pop(name), by)
        else:
            lines.append(f"m={part.kind} 0 {part.protocol} {' '.join(part.formats)}")
            lines += ["c=IN IP4 0.0.0.0", f"a=mid:{name}", "a=inactive"]
    if found:
        raise BadMessage(f"The answer has contents that were not offered: {', '.join(found)[:80]}")
    return Description("answer", "\r\n".join(lines) + "\r\n")


def candidates_in_info(jingle: Element, names: Sequence[str]) -> list[Candidate]:
    """The candidates in a `transport-info`, for contents of these names. Raises BadMessage."""
    made = []
    for content in jingle.children:
        ice = content.find(f"{ICE} transport")
        name = content.get("name")
        if ice is None or name not in names:
            continue
        for each in _all(ice, f"{ICE} candidate", MAX_CANDIDATES):
            made.append(Candidate(_candidate_line(each), name, names.index(name)))
    return made


def _medium(name: str, content: Element, by: str) -> list[str]:
    ice = content.find(f"{ICE} transport")
    if ice is None:
        raise BadMessage(
            "A content has no transport of ICE (urn:xmpp:jingle:transports:ice-udp:1)."
        )
    rtp = content.find(f"{RTP} description")
    lines = _rtp_lines(rtp, bool(_dtls(ice)), by) if rtp is not None else _data_lines(ice)
    lines = [lines[0], "c=IN IP4 0.0.0.0", *lines[1:], f"a=mid:{_token(name)}"]
    if rtp is not None:
        lines.append(f"a={_direction(content.get('senders'), by)}")
    if ice.get("ufrag"):
        lines += [f"a=ice-ufrag:{_value(ice.get('ufrag'))}", f"a=ice-pwd:{_value(ice.get('pwd'))}"]
    for number, each in enumerate(_dtls(ice)):
        lines.append(f"a=fingerprint:{_token(each.get('hash'))} {_value(each.text.strip())}")
        if not number and each.get("setup"):
            lines.append(f"a=setup:{_token(each.get('setup'))}")
    for each in _all(ice, f"{ICE} candidate", MAX_CANDIDATES):
        lines.append(f"a={_candidate_line(each)}")
    return lines


def _dtls(ice: Element) -> list[Element]:
    return _all(ice, f"{DTLS} fingerprint", 4)


def _direction(senders: str, by: str) -> str:
    if senders in ("", "both"):
        return "sendrecv"
    if senders == "none":
        return "inactive"
    return "sendonly" if senders == by else "recvonly"


def _data_lines(ice: Element) -> list[str]:
    sctp = ice.find(f"{_SCTP} sctpmap")
    if sctp is None:
        raise BadMessage("A content is neither audio, nor video, nor a data channel.")
    kind = _token(sctp.get("protocol") or "webrtc-datachannel")
    number = _number(sctp.get("number"), 65_535)
    return [f"m=application 9 UDP/DTLS/SCTP {kind}", f"a=sctp-port:{number}"]


def _rtp_lines(rtp: Element, is_encrypted: bool, by: str) -> list[str]:
    kind = _token(rtp.get("media"))
    payloads = _all(rtp, f"{RTP} payload-type", MAX_PAYLOADS)
    numbers = [_number(each.get("id"), 127) for each in payloads]
    if not payloads:
        raise BadMessage("A content has no payload types.")
    protocol = "UDP/TLS/RTP/SAVPF" if is_encrypted else "RTP/AVPF"
    lines = [f"m={kind} 9 {protocol} {' '.join(map(str, numbers))}", "a=rtcp:9 IN IP4 0.0.0.0"]
    if rtp.find(f"{RTP} rtcp-mux") is not None:
        lines.append("a=rtcp-mux")
    for each in _all(rtp, f"{_HEADERS} rtp-hdrext", MAX_LINES):
        senders = each.get("senders")
        direction = f"/{_direction(senders, by)}" if senders not in ("", "both") else ""
        number = f"{_number(each.get('id'), 255)}{direction}"
        lines.append(f"a=extmap:{number} {_value(each.get('uri'), ' ')}")
    lines += _feedback_lines(rtp, "*")
    for id_, payload in zip(numbers, payloads, strict=True):
        lines += _payload_lines(id_, payload)
    for each in _all(rtp, f"{_STREAMS} stream", MAX_LINES):
        lines.append(
            f"a=msid:{_value(each.get('id'), ' ')} {_value(each.get('track'), ' ')}".strip()
        )
    lines += _source_lines(rtp)
    return lines


def _source_lines(rtp: Element) -> Iterator[str]:
    sources: dict[int, list[str]] = {}
    for each in _all(rtp, f"{_SOURCES} source", MAX_LINES):
        said = sources.setdefault(_number(each.get("ssrc"), MAX_SSRC), [])
        for one in _all(each, f"{_SOURCES} parameter", MAX_LINES):
            text = _value(one.get("value"))
            said.append(_token(one.get("name")) + (f":{text}" if text else ""))
    for each in _all(rtp, f"{_SOURCES} ssrc-group", MAX_LINES):
        listed = [_number(one.get("ssrc"), MAX_SSRC) for one in each.children]
        if not listed or listed[0] not in sources:
            continue
        for ssrc in listed[1:]:  # some leave out what the second is, and browsers want to know
            sources.setdefault(ssrc, sources[listed[0]])
        yield f"a=ssrc-group:{_token(each.get('semantics'))} {' '.join(map(str, listed))}"
    for ssrc, several in sources.items():
        yield from (f"a=ssrc:{ssrc} {said}" for said in several)


def _payload_lines(number: int, payload: Element) -> Iterator[str]:
    if name := payload.get("name"):
        channels = _number(payload.get("channels") or "1", 255)
        rate = _number(payload.get("clockrate") or "8000", 10**7)
        more = f"/{channels}" if channels != 1 else ""
        yield f"a=rtpmap:{number} {_token(name)}/{rate}{more}"
    yield from _feedback_lines(payload, str(number))
    said = []
    for each in _all(payload, f"{RTP} parameter", MAX_LINES):
        name, value = _value(each.get("name"), ";"), _value(each.get("value"), ";")
        said.append(f"{name}={value}" if name and value else name or value)
    if said:
        yield f"a=fmtp:{number} {';'.join(said)}"


def _feedback_lines(element: Element, number: str) -> Iterator[str]:
    for each in _all(element, f"{_FEEDBACK} rtcp-fb", MAX_LINES):
        kinds = (_token(each.get("type")), _value(each.get("subtype")))
        yield f"a=rtcp-fb:{number} {' '.join(filter(None, kinds))}"
    for each in _all(element, f"{_FEEDBACK} rtcp-fb-trr-int", MAX_LINES):
        yield f"a=rtcp-fb:{number} trr-int {_number(each.get('value'), 65_535)}"


def _candidate_line(each: Element) -> str:
    words = [
        f"candidate:{_value(each.get('foundation'), ' ')}", _number(each.get("component"), 255),
        _token(each.get("protocol")).lower(), _number(each.get("priority"), 2**32 - 1),
        _value(each.get("ip"), " "), _number(each.get("port"), 65_535), "typ",
        _token(each.get("type")),
    ]  # fmt: skip
    if each.get("rel-addr"):
        port = _number(each.get("rel-port") or "0", 65_535)
        words += ["raddr", _value(each.get("rel-addr"), " "), "rport", port]
    if each.get("tcptype"):
        words += ["tcptype", _token(each.get("tcptype"))]
    words += ["generation", _number(each.get("generation") or "0", 10_000)]
    return " ".join(map(str, words))


def _all(element: Element, name: str, most: int) -> list[Element]:
    found = [each for each in element.children if each.name == name]
    if len(found) > most:
        raise BadMessage(f"There are more than {most} {name.rpartition(' ')[2]}.")
    return found


def _value(text: str, without: str = "") -> str:
    """A text that may stand in a line of SDP. Raises BadMessage."""
    is_long = len(text) > MAX_VALUE
    if is_long or not text.isprintable() or any(each in text for each in without):
        raise BadMessage("A text of the description cannot stand in SDP.")
    return text


def _token(text: str) -> str:
    """A word that may stand in a line of SDP. Raises BadMessage."""
    if len(text) > MAX_VALUE or not _TOKEN.fullmatch(text):
        raise BadMessage(f"A word of the description cannot stand in SDP: {text[:20]!a}.")
    return text


def _number(text: str, most: int) -> int:
    """A number from 0. Raises BadMessage."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= most):
        raise BadMessage(f"The description has {text[:20]!a} where a number up to {most} belongs.")
    return int(text)
