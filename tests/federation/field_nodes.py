"""Nodes of the field that tests play, and stubs for them. Own code, written from what was seen.

What the NodeJS and the NoMatrix node, and the stubs that they serve, were seen to do in November
2026, with a node of ours on the other side. The Vert.x node was not run: its lines are from reading
it, and from running its stub of 2019 against a node of ours.

Vert.x    `open` is answered with a token; the stub's session is its runtime URL and that token. It
          is taken up again (`re-open`) after a loss of the socket, with all that it has subscribed;
          an unknown one is answered 500, of which the stub says that it has failed. The stub
          connects again at once and without end, and writes its session into the `via` of all that
          passes, either way. The node learns the hyperties that write, takes subscriptions in
          `resources` or `subscribe` (500 with both or none), and what it sends to a lost socket is
          lost.
NodeJS    `open` is answered 200 without a token; its stub says nothing before it is connected, and
          `connected` then. Only what a socket has subscribed (in `subscribe`; `resources` is passed
          over and answered 200), and who has subscribed, is routed to it. The rest vanishes.
NoMatrix  no handshake: the runtime URL is in the URL of the socket, in `messagingnode` of the
          configuration. It learns who writes, and takes subscriptions in `resources` (else 400).
          Its stub writes into the body of what it is given, and fails where there is none.
          The client library of the NodeJS stub (socket.io 1.x) begins with polling by
          XMLHttpRequest, and takes a WebSocket later, if it can: PollingNode never offers one.
All       forget everything when they are started again, and answer nothing for unknown addresses.

Two more stand beside them: one that does as a node of this kind, with the stub that this node
serves, and one whose stub tells nothing of its kind.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from msgnode.stubs.bundle import bundled
from tests.node import ROOT
from tests.ports import free_port

from .links import A, B, Played
from .sandboxes import stub

SM = f"domain://msg-node.{B}/sm"

VERTX_STUB = """
export default class VertxProtoStub {
  _start(url, bus, config) {
    Object.assign(this, { url, bus, config, id: 0 });
    bus.addListener("*", (message) => {
      if (message.body.via !== this.session) this.send(this.marked(message));
    });
    this.status("created");
  }
  status(value, desc) {
    const to = this.url + "/status";
    this.bus.postMessage({ type: "update", from: this.url, to, body: { value, desc } });
  }
  marked(message) { return { ...message, body: { ...message.body, via: this.session } }; }
  send(message) { this.socket.send(JSON.stringify(message)); }
  ask(type) {
    const from = this.session ?? this.config.runtimeURL;
    this.send({ id: ++this.id, type, from, to: "mn:/session" });
  }
  connect() {
    if (this.socket) return;
    this.status("in-progress");
    const socket = (this.socket = new WebSocket(this.config.url));
    socket.onopen = () => this.ask(this.session ? "re-open" : "open");
    socket.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      if (message.from !== "mn:/session") return this.bus.postMessage(this.marked(message));
      const { code, desc, runtimeToken } = message.body;
      if (code !== 200) return this.status("failed", desc);
      if (runtimeToken) this.session = this.config.runtimeURL + "/" + runtimeToken;
      this.status("live");
    };
    socket.onclose = () => {
      this.socket = null;
      this.status("disconnected", "the socket was closed");
      if (!this.leaves) this.connect();
    };
  }
  disconnect() {
    this.leaves = true;
    this.ask("close");
  }
}
"""

OUR_STUB = bundled(ROOT / "msgnode" / "runtime" / "js" / "src" / "protostub.js")

NODEJS_STUB = """
class NodejsProtoStub {
  constructor(url, bus, config) {
    Object.assign(this, { url, bus, config });
    bus.addListener("*", (message) => this.connect().then(() => this.post(message)));
  }
  status(value) {
    const to = this.url + "/status";
    this.bus.postMessage({ type: "update", from: this.url, to, body: { value } });
  }
  post(message) { this.socket.send(JSON.stringify(message)); }
  connect() {
    return (this.connecting ??= new Promise((resolve) => {
      const socket = (this.socket = new WebSocket(this.config.url));
      const open = { id: 1, type: "open", from: this.config.runtimeURL, to: "mn:/session" };
      socket.onopen = () => this.post(open);
      socket.onmessage = ({ data }) => {
        const message = JSON.parse(data);
        if (message.from !== "mn:/session") return this.bus.postMessage(message);
        this.status("connected");
        resolve();
      };
      socket.onclose = () => {
        this.connecting = null;
        this.status("disconnected");
      };
    }));
  }
  disconnect() { this.socket?.close(); }
}
export default function activate(url, bus, config) {
  return { name: "NodejsProtoStub", instance: new NodejsProtoStub(url, bus, config) };
}
"""

NOMATRIX_STUB = """
class MatrixProtoStub {
  constructor(url, bus, config) {
    Object.assign(this, { url, bus, config });
    bus.addListener("*", (message) => this.connect().then(() => {
      message.body.via = url;
      this.socket.send(JSON.stringify(message));
    }));
    this.status("created");
  }
  status(value) {
    const to = this.url + "/status";
    this.bus.postMessage({ type: "update", from: this.url, to, body: { value } });
  }
  connect() {
    return (this.connecting ??= new Promise((resolve) => {
      this.status("in-progress");
      const { messagingnode, runtimeURL } = this.config;
      const at = messagingnode + "?runtimeURL=" + encodeURIComponent(runtimeURL);
      const socket = (this.socket = new WebSocket(at));
      socket.onopen = () => {
        this.status("live");
        resolve();
      };
      socket.onmessage = ({ data }) => {
        const message = JSON.parse(data);
        (message.body ??= {}).via = this.url;
        this.bus.postMessage(message);
      };
      socket.onclose = () => {
        this.connecting = null;
        this.status("disconnected");
      };
      socket.onerror = () => this.status("failed");
    }));
  }
  disconnect() {
    this.socket?.close();
  }
}
export default function activate(url, bus, config) {
  return { name: "MatrixProtoStub", instance: new MatrixProtoStub(url, bus, config) };
}
"""

POLLING_STUB = """
function ask(method, url, body) {
  return new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    xhr.open(method, url, true);
    if (method === "POST") xhr.setRequestHeader("Content-type", "text/plain;charset=UTF-8");
    xhr.onreadystatechange = () => {
      if (xhr.readyState !== 4) return;
      if (xhr.status === 200) resolve(xhr.responseText);
      else reject(new Error("xhr poll error"));
    };
    xhr.send(body ?? null);
  });
}
class NodejsProtoStub {
  constructor(url, bus, config) {
    Object.assign(this, { url, bus, config });
    this.at = "http://" + config.url.replace(/.*?:\\/\\//g, "") + "/poll";
    bus.addListener("*", (message) => this.connect().then(() => this.post(message)));
  }
  status(value) {
    const to = this.url + "/status";
    this.bus.postMessage({ type: "update", from: this.url, to, body: { value } });
  }
  post(message) {
    this.posted = (this.posted ?? Promise.resolve()).then(() =>
      ask("POST", this.at + "?sid=" + this.sid, JSON.stringify(message)).catch(() => {}));
  }
  connect() {
    return (this.connecting ??= new Promise((resolve) => {
      ask("GET", this.at).then((sid) => {
        this.sid = sid;
        this.poll(resolve);
        this.post({ id: 1, type: "open", from: this.config.runtimeURL, to: "mn:/session" });
      }, () => this.lost());
    }));
  }
  async poll(opened) {
    try {
      for (;;) {
        for (const message of JSON.parse(await ask("GET", this.at + "?sid=" + this.sid))) {
          if (message.from !== "mn:/session") this.bus.postMessage(message);
          else {
            this.status("connected");
            opened();
          }
        }
      }
    } catch {
      this.lost();
    }
  }
  lost() {
    this.connecting = null;
    this.status("disconnected");
  }
  disconnect() {}
}
export default function activate(url, bus, config) {
  return { name: "NodejsProtoStub", instance: new NodejsProtoStub(url, bus, config) };
}
"""

Answer = Callable[[dict[str, Any]], dict[str, Any] | None]


class FieldNode(Played):
    """Such a node. `runtimes`: what is at addresses there, a function that gives an answer or None.

    `dropped`: what it could not route, about which it says nothing.
    """

    kind = ""
    stub = ""

    def __init__(self, port: int = 0) -> None:
        super().__init__(port=port)
        self.known: dict[str, set[Any]] = {}  # the sockets, or sessions, at an address
        self.runtimes: dict[str, Answer] = {}
        self.dropped: list[dict[str, Any]] = []

    @property
    def configuration(self) -> dict[str, Any]:
        """What its descriptor says."""
        return {"url": f"ws://127.0.0.1:{self.port}/ws"}

    async def restart(self) -> None:
        """Killed, and started again: it has forgotten everything."""
        await self.stop()
        self.forget()
        await self.start()

    def forget(self) -> None:
        """Lose what it knows, as its process does."""
        self.known.clear()

    async def say(self, message: dict[str, Any]) -> None:
        """A runtime there sends this, or somebody else whom the node routes for."""
        to = message["to"]
        if to in self.runtimes:
            self.heard.append(message)
            body = self.runtimes[to](message)
            if body is not None and message["type"] not in ("response", "update"):
                head = {"id": message["id"], "type": "response", "from": to}
                await self.say({**head, "to": message["from"], "body": body})
            return
        links = self._at(to)
        if not links:
            await self._nobody(message)
        for link in links:
            with suppress(ConnectionClosed):
                await link.send(json.dumps(message))

    def _at(self, to: str) -> set[ServerConnection]:
        """The sockets at an address."""
        return self.known.get(to, set()) & set(self.links)

    async def _nobody(self, message: dict[str, Any]) -> None:
        self.dropped.append(message)

    async def _serve(self, link: ServerConnection) -> None:
        self.links.append(link)
        try:
            with suppress(ConnectionClosed):
                async for text in link:
                    await self._heard(json.loads(text), link)
        finally:
            self.links.remove(link)

    async def _heard(self, message: dict[str, Any], link: ServerConnection) -> None:
        raise NotImplementedError

    def _learn(self, addresses: list[str], link: ServerConnection) -> None:
        for each in addresses:
            self.known.setdefault(each, set()).add(link)

    async def _answer(
        self, message: dict[str, Any], link: ServerConnection, code: int, **more: str
    ) -> None:
        head = {"id": message["id"], "type": "response", "from": message["to"]}
        body = {"code": code, **more}
        await link.send(json.dumps({**head, "to": message["from"], "body": body}))


class VertxNode(FieldNode):
    """As the Vert.x node. `known` has the sessions at an address, by their tokens."""

    kind, stub = "vertx", VERTX_STUB

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        self.sessions: dict[str, ServerConnection] = {}  # token -> its newest socket
        self._tokens: dict[str, str] = {}  # runtime URL -> token

    def forget(self) -> None:
        for each in (self.known, self.sessions, self._tokens):
            each.clear()

    def _at(self, to: str) -> set[ServerConnection]:
        return {self.sessions[token] for token in self.known.get(to, ())}

    async def _heard(self, message: dict[str, Any], link: ServerConnection) -> None:
        if message["to"] == "mn:/session":
            await self._session(message, link)
            return
        [token] = [each for each, newest in self.sessions.items() if newest is link]
        if message["to"] == SM:
            await self._answer(message, link, self._subscribe(message, token))
        else:
            if message["from"].startswith("hyperty://"):
                self.known.setdefault(message["from"], set()).add(token)
            await self.say(message)

    async def _session(self, message: dict[str, Any], link: ServerConnection) -> None:
        runtime, _, token = message["from"].rpartition("/")
        if message["type"] == "open":
            token = self._tokens.setdefault(message["from"], str(uuid.uuid4()))
            self.sessions[token] = link
            await self._answer(message, link, 200, runtimeToken=token)
        elif self._tokens.get(runtime) != token:
            desc = "Reconnection fail. Incorrect runtime token!"
            await self._answer(message, link, 500, desc=desc)
        elif message["type"] == "re-open":
            self.sessions[token] = link
            await self._answer(message, link, 200)
        else:
            del self._tokens[runtime], self.sessions[token]
            for sessions in self.known.values():
                sessions.discard(token)
            await link.close()

    def _subscribe(self, message: dict[str, Any], token: str) -> int:
        body = message["body"]
        if ("resources" in body) == ("subscribe" in body or "unsubscribe" in body):
            return 500
        for each in body.get("resources") or body.get(message["type"], []):
            sessions = self.known.setdefault(each, set())
            (sessions.add if message["type"] == "subscribe" else sessions.discard)(token)
        return 200


class OurNode(VertxNode):
    """As a node of this kind: a link that has proved whose it is speaks for its domain."""

    kind, stub = "ours", OUR_STUB

    def _at(self, to: str) -> set[ServerConnection]:
        is_of_link = to.partition("://")[2].split("/")[0] == A and not to.endswith("/changes")
        return set(self.sessions.values()) if is_of_link else super()._at(to)

    async def _session(self, message: dict[str, Any], link: ServerConnection) -> None:
        runtime, _, token = message["from"].rpartition("/")
        if message["type"] == "re-open" and self._tokens.get(runtime) != token:
            message = {**message, "type": "open", "from": runtime}  # 200, with another token
        await super()._session(message, link)

    async def _nobody(self, message: dict[str, Any]) -> None:
        await super()._nobody(message)
        if message["type"] != "response":
            head = {"id": message["id"], "type": "response", "from": message["to"]}
            body = {"code": 404, "description": "Nobody is there."}
            await self.say({**head, "to": message["from"], "body": body})


class UnknownNode(FieldNode):
    """As a node of which nothing is known: it learns, and says nothing of unknown addresses."""

    kind, stub = "unknown", stub("resumes")

    async def _heard(self, message: dict[str, Any], link: ServerConnection) -> None:
        if message["to"] == "mn:/session":
            await self._answer(message, link, 200, runtimeToken=str(uuid.uuid4()))
            return
        self._learn([message["from"]], link)
        if message["to"] != SM:
            await self.say(message)
            return
        self._learn(message["body"]["resources"], link)
        await self._answer(message, link, 200)


class NodejsNode(FieldNode):
    """As the NodeJS node."""

    kind, stub = "nodejs", NODEJS_STUB

    async def _heard(self, message: dict[str, Any], link: ServerConnection) -> None:
        if message["to"] == "mn:/session":
            await self._answer(message, link, 200)
        elif message["to"] == SM:
            self._learn([message["from"]], link)
            if message["type"] == "subscribe":
                self._learn(message["body"].get("subscribe", []), link)
            for each in message["body"].get("unsubscribe", []):
                self.known.get(each, set()).discard(link)
            await self._answer(message, link, 200)
        else:
            await self.say(message)


class Poll:
    """What a client that polls has in place of a socket."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[str] = asyncio.Queue()

    async def send(self, text: str) -> None:
        self.waiting.put_nowait(text)


class PollingNode(NodejsNode):
    """As the NodeJS node to a client that polls."""

    stub = POLLING_STUB

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        self.requests: list[str] = []
        self._polls: dict[str, Any] = {}
        self._http: asyncio.Server | None = None

    @property
    def configuration(self) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{self.port}"}

    async def start(self) -> None:
        self.port = self.port or free_port()
        self._http = await asyncio.start_server(self._asked, "127.0.0.1", self.port)

    async def stop(self) -> None:
        assert self._http is not None
        self._http.close()
        self._polls.clear()
        self.links.clear()

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = re.search(r"(?i)content-length: (\d+)", head)
            body = await reader.readexactly(int(length[1])) if length else b""
            self.requests.append(head.partition(" HTTP")[0])
            status, text = await self._answered(head, body)
            lines = f"HTTP/1.1 {status} X\r\nContent-Type: text/plain\r\nConnection: close\r\n"
            encoded = text.encode()
            writer.write(f"{lines}Content-Length: {len(encoded)}\r\n\r\n".encode() + encoded)
            await writer.drain()
        writer.close()

    async def _answered(self, head: str, body: bytes) -> tuple[int, str]:
        sid = re.search(r"sid=(\w+)", head)
        if sid is None:
            name = f"s{len(self.requests)}"
            self._polls[name] = Poll()
            self.links.append(self._polls[name])
            return 200, name
        poll = self._polls.get(sid[1])
        if poll is None:
            return 400, "unknown sid"
        if head.startswith("POST"):
            await self._heard(json.loads(body), poll)
            return 200, "ok"
        found = []
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                found.append(await poll.waiting.get())
        while not poll.waiting.empty():
            found.append(poll.waiting.get_nowait())
        return 200, f"[{','.join(found)}]"


class NomatrixNode(FieldNode):
    """As the NoMatrix node."""

    kind, stub = "nomatrix", NOMATRIX_STUB

    @property
    def configuration(self) -> dict[str, Any]:
        return {"messagingnode": f"ws://127.0.0.1:{self.port}/stub/connect"}

    async def _heard(self, message: dict[str, Any], link: ServerConnection) -> None:
        self._learn([message["from"]], link)
        if message["to"] != SM:
            await self.say(message)
            return
        named = message["body"].get("resources")
        if named and message["type"] == "subscribe":
            self._learn(named, link)
        for each in named if named and message["type"] == "unsubscribe" else ():
            self.known.get(each, set()).discard(link)
        await self._answer(message, link, 200 if named else 400)
