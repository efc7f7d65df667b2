"""Descriptions in SDP and in Jingle: ours beside those of `stanza` (npm), for offers of browsers,
and what of a description does not get through.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from msgnode.core.errors import BadMessage
from msgnode.legacy.descriptions import Candidate, Description
from msgnode.legacy.jingle import FEATURES, candidates_in_info, from_jingle, info_of, to_jingle
from msgnode.legacy.xmpp_stream import COMPONENT, Element, StanzaParser, tag
from tests.console.window import opened
from tests.node import ROOT
from tests.services import NotAvailable, miss

MODULES = ROOT / ".ci" / "js" / "node_modules"
HOST = "candidate:1 1 udp 2113937151 192.0.2.1 50000 typ host generation 0"
AUDIO = "\r\n".join((
    "v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=-", "t=0 0", "a=group:BUNDLE 0",
    "m=audio 9 UDP/TLS/RTP/SAVPF 111 63 0", "c=IN IP4 0.0.0.0", "a=mid:0", "a=sendrecv",
    "a=ice-ufrag:abcd", "a=ice-pwd:0123456789abcdef01234567", "a=fingerprint:sha-256 AA:BB:CC",
    "a=setup:actpass", "a=rtcp-mux", "a=extmap:1 urn:ietf:params:rtp-hdrext:ssrc-audio-level",
    "a=rtpmap:111 opus/48000/2", "a=rtcp-fb:111 transport-cc",
    "a=fmtp:111 minptime=10;useinbandfec=1", "a=rtpmap:63 red/48000/2", "a=fmtp:63 111/111",
    "a=rtpmap:0 PCMU/8000", f"a={HOST}", "a=ssrc:7 cname:me", "a=msid:s t", "",
))  # fmt: skip
LOST = (
    "o=", "s=", "t=", "c=", "a=rtcp:", "a=msid-semantic", "a=extmap-allow-mixed", "a=rtcp-rsize",
    "a=ice-options", "a=rid:", "a=simulcast", "a=max-message-size", "a=bundle-only",
    "a=end-of-candidates", "a=rtcp-xr",
)  # fmt: skip
"""What no element of Jingle has, or what is each writer's own."""


def element_of(xml: str) -> Element:
    """A piece of XML as the gateway's parser gives it."""
    found: list[Element] = []
    parser = StanzaParser(lambda _: None, found.append)
    head = f"<s:stream xmlns:s='http://etherx.jabber.org/streams' xmlns='{COMPONENT}'>"
    parser.feed(f"{head}{xml}".encode())
    return found[0]


def jingle(*inside: str, action: str = "session-initiate") -> Element:
    head = {"xmlns": "urn:xmpp:jingle:1", "action": action, "sid": "s1"}
    return element_of(tag("jingle", head, *inside))


def lines_of(sdp: str) -> list[set[str]]:
    """What a description says, medium by medium, without what is lost and without order."""
    head, *parts = sdp.replace("\r\n", "\n").split("\nm=")
    above = [line for line in head.splitlines() if line.startswith(("a=fingerprint", "a=group"))]
    return [
        {_plain(line) for line in [*part.splitlines(), *above] if not line.startswith(LOST)}
        - ({"a=sendrecv"} if part.startswith("application") else set())
        for part in parts
    ]


def _plain(line: str) -> str:
    name, colon, rest = line.partition(" ")
    if name.startswith("a=fmtp"):
        return f"{name} {sorted(each.strip() for each in rest.split(';'))}"
    if name.startswith("a=candidate"):
        found = line.replace(" UDP ", " udp ").replace(" TCP ", " tcp ").partition(" network-")[0]
        return found.partition(" ufrag ")[0].removesuffix(" generation 0")
    if line.endswith("/1") and name.startswith("a=rtpmap"):
        return line.removesuffix("/1")
    return f"{name}{colon}{rest}"


@pytest.mark.parametrize("by", ["initiator", "responder"])
def test_a_description_comes_back_as_it_was(by: str) -> None:
    sdp = AUDIO.replace("a=sendrecv", "a=sendonly")
    made = to_jingle(Description("offer", sdp), by)
    assert f'senders="{by}"' in made[0]
    assert lines_of(from_jingle(jingle(*made), by).sdp) == lines_of(sdp)


def test_case_25_a_candidate_beside_a_description_is_a_transport_info() -> None:
    info = jingle(info_of("0", "abcd", "pw", Candidate(HOST, "0", 0)), action="transport-info")
    assert candidates_in_info(info, ["0"]) == [Candidate(HOST, "0", 0)]
    assert not candidates_in_info(info, ["audio"])
    late = Description("offer", AUDIO, (Candidate(HOST.replace("50000", "50001"), "0", 0),))
    assert from_jingle(jingle(*to_jingle(late, "initiator")), "initiator").sdp.count("a=cand") == 2


def test_a_medium_that_is_refused_has_no_content_and_comes_back_refused() -> None:
    offer = AUDIO + "m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:1\r\na=rtpmap:96 VP8/90000\r\n"
    answer = AUDIO + "m=video 0 UDP/TLS/RTP/SAVPF 96\r\na=mid:1\r\na=inactive\r\n"
    made = to_jingle(Description("answer", answer), "responder")
    assert len([each for each in made if each.startswith("<content")]) == 1
    back = from_jingle(jingle(*made, action="session-accept"), "responder", offer)
    assert back.type == "answer"
    assert "\r\nm=video 0 UDP/TLS/RTP/SAVPF 96\r\n" in back.sdp
    with pytest.raises(BadMessage, match="not offered"):
        from_jingle(
            jingle(*to_jingle(Description("offer", offer), "responder")), "responder", AUDIO
        )


def changed(old: str, new: str) -> Element:
    made = "".join(to_jingle(Description("offer", AUDIO), "initiator"))
    assert old in made
    return jingle(made.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('ufrag="abcd"', 'ufrag="a&#13;&#10;a=inactive"'),
        ('pwd="0', 'pwd="&#10;'),
        ('uri="urn', 'uri="urn x'),
        ('value="10"', 'value="10;x=1"'),
        ('hash="sha-256"', 'hash="sha-256 AA"'),
        ("AA:BB:CC", "A" * 201),
        ('media="audio"', 'media="audio 9"'),
        ('port="50000"', 'port="many"'),
        ('port="50000"', 'port="-1"'),
        ('port="50000"', 'port="65536"'),
        ('clockrate="48000"', 'clockrate="4&#x663;"'),
        ('id="111"', 'id="128"'),
        ('ssrc="7"', 'ssrc="4294967296"'),
        ("payload-type", "other"),
        ("urn:xmpp:jingle:transports:ice-udp:1", "urn:xmpp:jingle:transports:raw-udp:1"),
        ("urn:xmpp:jingle:apps:rtp:1", "urn:xmpp:jingle:apps:file-transfer:5"),
    ],
)
def test_case_29_what_is_no_description_is_refused_and_injects_nothing(old: str, new: str) -> None:
    with pytest.raises(BadMessage):
        from_jingle(changed(old, new), "initiator")


def test_case_29_contents_payload_types_and_candidates_are_counted() -> None:
    content = next(iter(to_jingle(Description("offer", AUDIO), "initiator")))
    payload = '<payload-type id="5"/>'
    several = "".join(content.replace('name="0"', f'name="{each}"') for each in range(17))
    many = content.replace("<payload-type", payload * 62 + "<payload-type", 1)
    with pytest.raises(BadMessage, match="content"):
        from_jingle(jingle(several), "initiator")
    with pytest.raises(BadMessage, match="64 payload-type"):
        from_jingle(jingle(many), "initiator")


@pytest.mark.parametrize(
    "sdp", ["v=0\r\n", "v=0\r\nm=audio\r\n", AUDIO.replace(HOST, "candidate:x")]
)
def test_an_offer_of_a_runtime_that_is_none_is_refused(sdp: str) -> None:
    with pytest.raises(BadMessage):
        to_jingle(Description("offer", sdp), "initiator")


def test_features_are_those_of_calls() -> None:
    assert len(set(FEATURES)) == len(FEATURES) == 11


# --- beside others --------------------------------------------------------------------------------

OFFERS = """
const pc = () => new RTCPeerConnection();
const wave = () => new AudioContext().createMediaStreamDestination().stream;
const screen = () => Object.assign(document.createElement("canvas"), {}).captureStream();
const made = [];
for (const setUp of [
  (c) => c.addTransceiver("audio"),
  (c) => c.addTransceiver("audio", { direction: "recvonly" }),
  (c) => wave().getTracks().forEach((t) => c.addTrack(t, new MediaStream([t]))),
  (c) => c.createDataChannel("chat"),
  (c) => { c.addTransceiver("audio"); c.addTransceiver("video"); },
  (c) => { c.addTransceiver("audio"); c.addTransceiver("video"); c.createDataChannel("chat"); },
  (c) => c.addTransceiver("video", { direction: "sendonly" }),
  (c) => screen().getTracks().forEach((t) => c.addTrack(t, new MediaStream([t]))),
  (c) => c.addTransceiver("video", { sendEncodings: [{ rid: "h" }, { rid: "l" }] }),
]) {
  const one = pc();
  setUp(one);
  await one.setLocalDescription(await one.createOffer());
  await new Promise((r) => setTimeout(r, 50));
  made.push(one.localDescription.sdp);
}
return made;
"""
ANSWER = """
const offerer = new RTCPeerConnection(), taker = new RTCPeerConnection();
await taker.setRemoteDescription({ type: "offer", sdp });
await taker.setLocalDescription(await taker.createAnswer());
return taker.localDescription.sdp;
"""


@pytest.fixture(scope="module")
def offers(chromium: str) -> Iterator[tuple[Any, list[str]]]:
    """A page of Chromium, and offers that it has made."""
    with opened(chromium) as window:
        page = window.new_page()
        page.goto("about:blank")
        yield page, page.evaluate(f"async () => {{ {OFFERS} }}")


def through_stanza(nodejs: str, asked: list[dict[str, str]]) -> list[str]:
    """What `stanza` makes of descriptions."""
    if not (MODULES / "stanza").exists():
        miss(NotAvailable("`stanza` is not installed: .ci/js/lint installs it"))
    said = subprocess.run(
        [nodejs, str(Path(__file__).parent / "jingle.mjs"), str(MODULES)], check=False,
        input="".join(f"{json.dumps(each)}\n" for each in asked), capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr[-2000:]
    return [json.loads(line) for line in said.stdout.splitlines()]


@pytest.mark.long
def test_case_30_offers_of_chromium_pass_through_stanza_both_ways(
    offers: tuple[Any, list[str]], nodejs: str
) -> None:
    page, made = offers
    firefox = (Path(__file__).parent / "firefox.sdp").read_text()
    made = [*made, firefox.replace("\n", "\r\n")]
    theirs = through_stanza(nodejs, [{"sdp": each, "by": "initiator"} for each in made])
    taken = [from_jingle(element_of(xml).children[0], "initiator").sdp for xml in theirs]
    said = [tag("iq", {"xmlns": "jabber:client", "type": "set"}, tag(
        "jingle", {"xmlns": "urn:xmpp:jingle:1", "action": "session-initiate", "sid": "s"},
        *to_jingle(Description("offer", each), "initiator"))) for each in made]  # fmt: skip
    read = through_stanza(nodejs, [{"jingle": xml, "by": "initiator"} for xml in said])
    for sdp, ours, by_stanza, xml in zip(made, taken, read, said, strict=True):
        back = from_jingle(element_of(xml).children[0], "initiator").sdp
        for one, other in zip(lines_of(back), lines_of(sdp), strict=True):
            assert one ^ other == set()
        assert "m=" in by_stanza
        for each in (ours, back):
            answer = page.evaluate(f"async (sdp) => {{ {ANSWER} }}", each)
            accept = to_jingle(Description("answer", answer), "responder")
            again = from_jingle(jingle(*accept), "responder", each).sdp
            for one, other in zip(lines_of(again), lines_of(answer), strict=True):
                assert one ^ other == set()
