"""A server of files on the loopback, for tests that need pages and nothing of a node."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.node import ROOT

PACKAGE = ROOT / "msgnode" / "runtime" / "js"


class _Files(SimpleHTTPRequestHandler):
    extensions_map = {
        **SimpleHTTPRequestHandler.extensions_map,
        **dict.fromkeys((".js", ".mjs"), "text/javascript"),
    }

    def translate_path(self, path: str) -> str:
        """Where a file is; the cases of the policy language are the node's own."""
        if path == "/cases.jsonl":
            return str(ROOT / "tests" / "policies" / "cases.jsonl")
        return super().translate_path(path)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path = PACKAGE) -> Iterator[str]:
    """Serves the files of a folder; their URL."""
    handler = functools.partial(_Files, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
