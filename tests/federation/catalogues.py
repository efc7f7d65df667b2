"""Catalogues of stubs over HTTP that tests play."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECONDS = 30.0


class Catalogue:
    """Answers below a path for each peer, with its descriptor; below `/never` never."""

    def __init__(self, descriptors: Mapping[str, Mapping[str, Any]]) -> None:
        self.asked: Counter[str] = Counter()
        self.gate = threading.Event()
        catalogue = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = f"/{self.path.split('/')[1]}"
                catalogue.asked[name] += 1
                if name == "/never":
                    catalogue.gate.wait(SECONDS)
                content = json.dumps(descriptors.get(name, {})).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()


def described(source: str, url: str, **more: Any) -> dict[str, Any]:
    """The descriptor of a stub that connects to a URL."""
    return {"sourcePackage": {"sourceCode": source}, "configuration": {"url": url}, **more}
