"""A load generator as the measuring process sees it: one call, one sample."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Self

from .processes import ROOT, Server


class Generator:
    """Drives one server. A context manager that ends the generator's process."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.generator", str(server.port), str(server.pid)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, do: str, **arguments: Any) -> dict[str, float]:
        """Have one load run; raises RuntimeError if the server did not bear it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        result: dict[str, Any] = json.loads(line) if line else {"error": "the generator has ended"}
        if "error" in result:
            raise RuntimeError(f"{do} on {self.server.name}: {result['error']}")
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
