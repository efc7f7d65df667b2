"""A real kamailio with deploy/kamailio.cfg, and phones behind it.

A phone is written from RFC 3261 and shares nothing with the gateway: UDP, text, one call at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import math
import os
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgnode.launch.pdeathsig import tie
from tests.client import LIMIT
from tests.ports import free_port
from tests.services import needs_program
from tests.waiting import until

DOMAIN, GATEWAY = "sip.example", "gw.sip.example"
SECRET = "pw-{user}"
CONFIGURATION = Path(__file__).resolve().parent.parent.parent / "deploy" / "kamailio.cfg"


class Kamailio:
    """A proxy and registrar in a directory of its own, on a free port.

    `lines` are its configuration in place of that of deploy/.
    """

    def __init__(self, place: Path, lines: str = "") -> None:
        needs_program("kamailio")
        self.port = free_port()
        self._place = place
        place.mkdir(parents=True, exist_ok=True)
        self._config = place / "kamailio.cfg"
        own = "#!KAMAILIO\nchildren=2\ntcp_children=2\ndisable_core_dump=yes\nlog_stderror=yes\n"
        lines = lines or CONFIGURATION.read_text()
        self._config.write_text(own + lines.replace("5060", str(self.port)))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Kamailio:
        for left in self._place.glob("*pid*"):
            left.unlink()
        with (self._place / "said").open("ab") as said:
            self._process = subprocess.Popen(
                ["kamailio", "-f", str(self._config), "-P", str(self._place / "pid"), "-DD", "-E",
                 "-w", str(self._place), "-Y", str(self._place)],
                stdout=said, stderr=said, start_new_session=True,
                preexec_fn=lambda: tie(signal.SIGTERM),
            )  # fmt: skip

        def answers() -> bool:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return True
            return False

        until(answers, LIMIT, self.log, every=0.02)
        return self

    def log(self) -> str:
        return (self._place / "said").read_text()[-4_000:]

    def send_signal(self, number: int) -> None:
        """To all of its processes."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def stop(self) -> None:
        """End it as `kill -9` does."""
        self.send_signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(LIMIT)


@contextmanager
def kamailio(place: Path, lines: str = "") -> Iterator[Kamailio]:
    server = Kamailio(place, lines)
    try:
        yield server.start()
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)


class Sip:
    """A message of SIP."""

    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        self.first, *lines = head.decode().split("\r\n")
        self.headers = [
            (name.strip().lower(), value.strip())
            for name, _, value in (line.partition(":") for line in lines)
        ]

    def all(self, name: str) -> list[str]:
        return [value for each, value in self.headers if each == name]

    def __getitem__(self, name: str) -> str:
        return next(iter(self.all(name)), "")

    @property
    def code(self) -> int:
        return int(self.first.split()[1]) if self.first.startswith("SIP/2.0") else 0

    @property
    def method(self) -> str:
        return self["cseq"].split()[-1]

    @property
    def text(self) -> str:
        return self.body.decode()


class Phone(asyncio.DatagramProtocol):
    """A user agent at the proxy; `texts` are the messages that it was sent, with their senders.

    `on_request` may answer a request itself: it is True then.
    """

    def __init__(self, name: str, port: int) -> None:
        self.name, self._proxy = name, ("127.0.0.1", port)
        self.texts: list[tuple[str, str]] = []
        self.requests: list[Sip] = []
        self.on_request: Callable[[Sip], bool] = lambda _: False
        self.silent = False
        self._taken: set[str] = set()  # the first `Via` of each message, which has its branch
        self._waits: dict[str, asyncio.Queue[Sip]] = {}
        self._number = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._port = transport.get_extra_info("sockname")[1]
        self.contact = f"sip:{self.name}@127.0.0.1:{self._port}"

    def datagram_received(self, data: bytes, _: Any) -> None:
        message = Sip(data)
        if self.silent or not data.strip():
            return
        if message.code:
            branch = re.search(r"branch=([^;,\s]+)", message["via"])
            if branch and branch[1] in self._waits and message.method != "CANCEL":
                self._waits[branch[1]].put_nowait(message)
            return
        self.requests.append(message)
        if self.on_request(message):
            return
        if message.method == "MESSAGE" and message["via"] not in self._taken:  # else sent again
            self._taken.add(message["via"])
            self.texts.append((message["from"], message.text))
        if message.method != "ACK":
            self.answer(message, 200)

    def tag_in(self, request: Sip) -> str:
        """Its tag in a call to it: another phone of the same user has another one."""
        return f"{self.name}{self._port}{request['call-id'][:6]}"

    def answer(self, request: Sip, code: int, body: str = "", *more: str) -> None:
        """Answer a request; it has a tag of ours, and a contact."""
        to = request["to"]
        if code > 100 and "tag=" not in to:
            to += f";tag={self.tag_in(request)}"
        lines = [f"SIP/2.0 {code} As the test wants", *(f"Via: {v}" for v in request.all("via"))]
        lines += [f"Record-Route: {each}" for each in request.all("record-route")]
        lines += [f"From: {request['from']}", f"To: {to}", f"Call-ID: {request['call-id']}",
                  f"CSeq: {request['cseq']}", f"Contact: {self.contact}", *more]  # fmt: skip
        self.write(lines, body)

    def write(self, lines: list[str], body: str = "") -> None:
        lines = [*lines, "Content-Type: application/sdp"] if body.startswith("v=0") else lines
        head = "\r\n".join([*lines, f"Content-Length: {len(body.encode())}", "", ""])
        self._transport.sendto((head + body).encode(), self._proxy)

    async def ask(self, method: str, uri: str, body: str = "", *more: str, **how: Any) -> Sip:
        """Send a request, answer a challenge; the final response."""
        call = how.get("call") or {"call-id": secrets.token_hex(8), "to": f"<{uri}>"}
        sender = call.get("from") or how.get("sender") or f"sip:{self.name}@{DOMAIN}"
        named = sender if "tag=" in sender else f"<{sender}>;tag={self.name}{secrets.token_hex(4)}"
        extra: list[str] = []
        for _ in range(2):
            self._number += 1
            branch = f"z9hG4bK{secrets.token_hex(8)}"
            queue = self._waits[branch] = asyncio.Queue()
            lines = [f"{method} {uri} SIP/2.0",
                     f"Via: SIP/2.0/UDP 127.0.0.1:{self._port};branch={branch};rport",
                     "Max-Forwards: 70", f"From: {named}", f"To: {call['to']}",
                     f"Call-ID: {call['call-id']}", f"CSeq: {self._number} {method}",
                     f"Contact: <{self.contact}>", *more, *extra]  # fmt: skip
            self.last = (branch, lines)
            self.write(lines, body)
            async with asyncio.timeout(LIMIT):
                while (response := await queue.get()).code < 200:
                    if (heard := how.get("heard")) is not None:
                        heard.append(response.code)
            if response.code >= 300 and method == "INVITE":
                self._acknowledge(uri, branch, lines, response)
            if response.code not in (401, 407):
                break
            extra = [self._answer_to(response, method, uri)]
        return response

    def _acknowledge(self, uri: str, branch: str, lines: list[str], response: Sip) -> None:
        kept = [each for each in lines if each.startswith(("Via", "From", "Call-ID", "Route"))]
        self.write([f"ACK {uri} SIP/2.0", *kept, f"To: {response['to']}", "Max-Forwards: 70",
                    f"CSeq: {self._number} ACK"])  # fmt: skip

    def acknowledge(self, uri: str, call: dict[str, str], routes: tuple[str, ...]) -> None:
        """Acknowledge the 2xx of a call."""
        self.write([f"ACK {uri} SIP/2.0",
                    f"Via: SIP/2.0/UDP 127.0.0.1:{self._port};branch=z9hG4bK{secrets.token_hex(8)}",
                    *routes, f"From: {call['from']}", f"To: {call['to']}",
                    f"Call-ID: {call['call-id']}", "Max-Forwards: 70",
                    f"CSeq: {self._number} ACK"])  # fmt: skip

    def cancel(self, uri: str) -> None:
        """Withdraw the INVITE that was sent last."""
        kept = [each for each in self.last[1] if each.startswith(("Via", "From", "To", "Call-ID"))]
        self.write([f"CANCEL {uri} SIP/2.0", *kept, "Max-Forwards: 70",
                    f"CSeq: {self._number} CANCEL"])  # fmt: skip

    def _answer_to(self, response: Sip, method: str, uri: str) -> str:
        challenge = response["www-authenticate"] or response["proxy-authenticate"]
        said = dict(re.findall(r'(\w+)="([^"]*)"', challenge))

        def md5(text: str) -> str:
            return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()

        who = md5(f"{self.name}:{said['realm']}:pw-{self.name}")
        qop = "qop" in said
        middle = f"{said['nonce']}:00000001:abc:auth" if qop else said["nonce"]
        value = md5(f"{who}:{middle}:{md5(f'{method}:{uri}')}")
        name = "Authorization" if response.code == 401 else "Proxy-Authorization"
        more = ', qop=auth, nc=00000001, cnonce="abc"' if qop else ""
        return (f'{name}: Digest username="{self.name}", realm="{said["realm"]}", '
                f'nonce="{said["nonce"]}", uri="{uri}", response="{value}"{more}')  # fmt: skip

    async def register(self, seconds: int = 3600) -> None:
        home = f"sip:{self.name}@{DOMAIN}"
        call = {"call-id": secrets.token_hex(8), "to": f"<{home}>"}
        response = await self.ask("REGISTER", f"sip:{DOMAIN}", "", f"Expires: {seconds}", call=call)
        assert response.code == 200, response.first

    async def write_to(self, uri: str, text: str, **how: Any) -> Sip:
        """Send a message; the final response."""
        return await self.ask("MESSAGE", uri, text, "Content-Type: text/plain", **how)

    async def until(self, condition: Callable[[], Any], seconds: float = LIMIT) -> Any:
        async with asyncio.timeout(seconds):
            while not (found := condition()):  # noqa: ASYNC110  (a test's condition)
                await asyncio.sleep(0.01)
        return found


@asynccontextmanager
async def phone(server: Kamailio, name: str = "bob", contact: str = "") -> AsyncIterator[Phone]:
    """A phone that is registered, at its own place or another."""
    loop = asyncio.get_running_loop()
    transport, each = await loop.create_datagram_endpoint(
        lambda: Phone(name, server.port), local_addr=("127.0.0.1", 0)
    )
    try:
        each.contact = contact or each.contact
        await each.register()
        yield each
    finally:
        with suppress(TimeoutError, AssertionError):
            async with asyncio.timeout(2.0):
                await each.register(0)
        transport.close()


class Sound(asyncio.DatagramProtocol):
    """The media of a plain phone: it plays a tone of 400 Hz as PCMU over RTP, and hears.

    `energy` is that of what it has heard so far: 0.5 for a second of the loudest tone there can be.
    """

    def __init__(self) -> None:
        self.energy = 0.0
        self._playing: asyncio.Task[None] | None = None
        self._linear = [self._decoded(each) for each in range(256)]
        wave = [8_000 * math.sin(2 * math.pi * each / 20) for each in range(20)]
        coded = {linear: byte for byte, linear in enumerate(self._linear)}
        tone = [coded[min(coded, key=partial(self._distance, each))] for each in wave]
        self._tone = bytes(tone) * 8  # 20 ms

    @staticmethod
    def _distance(one: float, other: float) -> float:
        return abs(one - other)

    @staticmethod
    def _decoded(byte: int) -> int:
        """A sample of ITU-T G.711 mu-law."""
        byte = ~byte & 255
        size = (((byte & 15) << 3) + 132 << (byte >> 4 & 7)) - 132
        return -size if byte & 128 else size

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, _: Any) -> None:
        if len(data) > 12 and data[1] & 127 == 0:
            self.energy += sum((self._linear[each] / 32_768) ** 2 for each in data[12:]) / 8_000

    @property
    def sdp(self) -> str:
        port = self._transport.get_extra_info("sockname")[1]
        return ("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
                f"m=audio {port} RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\na=sendrecv\r\n")  # fmt: skip

    def play(self, sdp: str) -> None:
        """Play to who is described."""
        host, port = re.findall(r"c=IN IP4 (\S+)", sdp)[0], re.findall(r"m=audio (\d+)", sdp)[0]
        self._playing = asyncio.create_task(self._play((host, int(port))))

    async def _play(self, to: tuple[str, int]) -> None:
        for number in itertools.count():
            head = struct.pack("!BBHII", 128, 0, number & 0xFFFF, number * 160, 7)
            self._transport.sendto(head + self._tone, to)
            await asyncio.sleep(0.02)

    def stop(self) -> None:
        if self._playing is not None:
            self._playing.cancel()
        self._transport.close()


@asynccontextmanager
async def sound() -> AsyncIterator[Sound]:
    loop = asyncio.get_running_loop()
    _, each = await loop.create_datagram_endpoint(Sound, local_addr=("127.0.0.1", 0))
    try:
        yield each
    finally:
        each.stop()


# --- programs that others have written ------------------------------------------------------------


@asynccontextmanager
async def sipp(server: Kamailio, place: Path, lost: int = 0) -> AsyncIterator[str]:
    """A sipp over UDP that answers calls, and loses some of every hundred packets; its name."""
    needs_program("sipp")
    name, port = "sipp", free_port()
    shown = subprocess.run(  # noqa: ASYNC221  (a moment)
        ["sipp", "-sd", "uas"], capture_output=True, text=True, check=False
    )
    scenario = re.sub(
        r"(\[last_CSeq:\])(?=(?:(?!</send>)[\s\S])*Contact)", r"\1\n      [last_Record-Route:]",
        shown.stdout[shown.stdout.index("<?xml"):],
    )  # fmt: skip
    (place / "uas.xml").write_text(scenario)
    command = ["sipp", "-sf", str(place / "uas.xml"), "-i", "127.0.0.1", "-p", str(port),
               "-timeout", "240", "-trace_err", *(["-lost", str(lost)] if lost else []),
               "-nostdin"]  # fmt: skip
    process = subprocess.Popen(  # noqa: ASYNC220  (a test's)
        command, cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, preexec_fn=lambda: tie(signal.SIGKILL),
    )  # fmt: skip
    try:
        async with phone(server, name, f"sip:{name}@127.0.0.1:{port}"):
            yield name
    finally:
        process.kill()
        process.wait(LIMIT)


@contextmanager
def rtpengine(port: int, place: Path) -> Iterator[None]:
    """An rtpengine that is told of calls on a port."""
    needs_program("rtpengine")
    first = free_port()
    command = ["rtpengine", "--interface=127.0.0.1", f"--listen-ng=127.0.0.1:{port}",
               "--config-file=none",  # whose one port of commands two cannot share
               f"--port-min={first}", f"--port-max={first + 20}", "--table=-1", "--foreground",
               "--log-stderr", "--num-threads=2"]  # fmt: skip
    with (place / "rtpengine").open("wb") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            preexec_fn=lambda: tie(signal.SIGKILL),
        )  # fmt: skip
    try:
        until(lambda: asked(port, "d7:command4:pinge"), LIMIT, lambda: said.name, every=0.02)
        yield
    finally:
        process.kill()
        process.wait(LIMIT)


def asked(port: int, words: str) -> bytes:
    """What rtpengine answers, b"" if nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, suppress(OSError):
        udp.settimeout(1.0)
        udp.connect(("127.0.0.1", port))
        udp.send(f"{secrets.token_hex(4)} {words}".encode())
        return udp.recv(65_536)
    return b""


async def sessions(port: int) -> set[str]:
    """The ids of the calls that rtpengine has."""
    said = await asyncio.to_thread(asked, port, "d7:command4:list5:limiti1000ee")
    listed = said.partition(b"5:callsl")[2].partition(b"e6:result")[0]
    found, rest = set(), listed
    while rest:
        size, _, rest = rest.partition(b":")
        found.add(rest[: int(size)].decode())
        rest = rest[int(size) :]
    return found


async def offered(port: int, call: str, sdp: str) -> None:
    """Have rtpengine take a call, as another than the gateway would."""
    said = {"call-id": call, "command": "offer", "from-tag": "theirs", "sdp": sdp}
    words = "".join(f"{len(text)}:{text}" for pair in said.items() for text in pair)
    assert b"6:result2:ok" in await asyncio.to_thread(asked, port, f"d{words}e")
