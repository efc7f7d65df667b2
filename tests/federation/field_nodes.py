"""Nodes of the field that tests play, and stubs for them. Own code, written from what was seen.

What the NodeJS and the NoMatrix node, and the stubs that they serve, were seen to do in November
2026, with a node of ours on the other side:

NodeJS    `open` is answered 200 without a token; its stub says nothing before it is connected, and
          `connected` then. Only what a socket has subscribed (in `subscribe`; `resources` is passed
          over and answered 200), and who has subscribed, is routed to it. The rest vanishes.
NoMatrix  no handshake: the runtime URL is in the URL of the socket, in `messagingnode` of the
          configuration. It learns who writes, and takes subscriptions in `resources` (else 400).
          Its stub writes into the body of what it is given, and fails where there is none.
          The client library of the NodeJS stub (socket.io 1.x) begins with polling by
          XMLHttpRequest, and takes a WebSocket later, if it can: PollingNode never offers one.
Both      forget everything when they are started again, and answer nothing for unknown addresses.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from tests.ports import free_port

from .links import B, Played

SM = f"domain://msg-node.{B}/sm"

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
        self.known: dict[str, set[ServerConnection]] = {}
        self.runtimes: dict[str, Answer] = {}
        self.dropped: list[dict[str, Any]] = []

    @property
    def configuration(self) -> dict[str, Any]:
        """What its descriptor says."""
        return {"url": f"ws://127.0.0.1:{self.port}/ws"}

    async def restart(self) -> None:
        """Killed, and started again: it has forgotten everything."""
        await self.stop()
        self.known.clear()
        await self.start()

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
        links = self.known.get(to, set()) & set(self.links)
        if not links:
            self.dropped.append(message)
        for link in links:
            with suppress(ConnectionClosed):
                await link.send(json.dumps(message))

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

    async def _answer(self, message: dict[str, Any], link: ServerConnection, code: int) -> None:
        head = {"id": message["id"], "type": "response", "from": message["to"]}
        await link.send(json.dumps({**head, "to": message["from"], "body": {"code": code}}))


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
