"""Servers of other makes, compared where the machine has them: Node.js with `ws`, and NATS."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from .processes import ROOT, Server, free_port

NODEJS = "Node.js ws"
NODEJS_BUFFER = "Node.js ws, one buffer"
NODEJS_FRAME = "Node.js, one frame"
_HOW = {NODEJS: "text", NODEJS_BUFFER: "buffer", NODEJS_FRAME: "frame"}
NATS = "NATS"

_RELAY = ROOT / "bench" / "nodejs" / "relay.mjs"
_INSTALL_SECONDS = 60.0


def nodejs(directory: Path, name: str = NODEJS) -> Server | None:
    """The Node.js relay, None where there is no Node.js or no `ws` (npm is asked for it)."""
    program = shutil.which("node")
    if program is None:
        return None
    home = directory / "nodejs"
    home.mkdir(exist_ok=True)
    environment = {}
    if not _has_ws(program, _RELAY):
        beside = home / "relay.mjs"
        if not _has_ws(program, beside) and not _installed_ws(home):
            return None
        environment["WS_FROM"] = str(beside)
    port = free_port()
    arguments = [str(_RELAY), str(port), _HOW[name]]
    return Server(name, arguments, port, home / f"log-{_HOW[name]}", environment, program)


def nats(directory: Path) -> Server | None:
    """NATS over WebSocket, None where it is not installed."""
    program = shutil.which("nats-server")
    if program is None:
        return None
    home = directory / "nats"
    home.mkdir()
    port, plain = free_port(), free_port()
    settings = home / "settings"
    settings.write_text(
        f"listen: 127.0.0.1:{plain}\n"
        f"websocket {{ listen: 127.0.0.1:{port}, no_tls: true, compression: false }}\n"
    )
    return Server(NATS, ["-c", str(settings)], port, home / "log", {}, program)


def _has_ws(program: str, place: Path) -> bool:
    ask = f"require('module').createRequire({str(place)!r}).resolve('ws')"
    return subprocess.run([program, "-e", ask], capture_output=True, check=False).returncode == 0


def _installed_ws(home: Path) -> bool:
    npm = shutil.which("npm")
    if npm is None:
        return False
    command = [npm, "install", "--no-save", "--no-audit", "--no-fund", "ws@8"]
    try:
        done = subprocess.run(
            command, cwd=home, env=dict(os.environ), capture_output=True, check=False,
            timeout=_INSTALL_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
