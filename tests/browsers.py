"""Firefox and WebKit for tests, with what these use of playwright's browsers: go and evaluate.

Playwright drives Firefox and WebKit in builds of its own only. Here Debian's Firefox is driven by
WebDriver BiDi, which it speaks itself, and Debian's WebKitGTK by its WebDriver, on a screen of
Xvfb.

What WebKit lacks: Debian builds WebKitGTK without WebRTC, so there is no RTCPeerConnection and no
direct connection.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from websockets.sync.client import ClientConnection, connect

from msgnode.launch.pdeathsig import tie
from tests.ports import free_port
from tests.services import needs_program
from tests.waiting import until

SECONDS = 300.0
"""For one thing that a page does."""
MINIBROWSERS = sorted(Path("/usr/lib").glob("*/webkit2gtk-4.1/MiniBrowser"))
PREFERENCES = {
    "media.peerconnection.ice.loopback": True,  # which is all there may be
    "media.peerconnection.ice.obfuscate_host_addresses": False,
    "app.update.auto": False,
    "browser.safebrowsing.downloads.remote.enabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.update.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,",
    "toolkit.telemetry.server": "data:,",
}


class Page(Protocol):
    """A page, as playwright's are used."""

    def goto(self, url: str) -> None:
        """Open a page and wait until it is loaded."""

    def evaluate(self, function: str, argument: Any = None) -> Any:
        """What a function returned in the page, or the promise that it returned came to."""

    def close(self) -> None:
        """Close it."""


class Browser(Protocol):
    """A browser, as playwright's are used."""

    def new_page(self) -> Page:
        """A page of its own."""


class PageError(Exception):
    """What a page threw."""


# --- Firefox --------------------------------------------------------------------------------------


class _FirefoxPage:
    def __init__(self, browser: Firefox) -> None:
        self._do = browser.do
        self._context = self._do("browsingContext.create", type="tab")["context"]

    def goto(self, url: str) -> None:
        self._do("browsingContext.navigate", context=self._context, url=url, wait="complete")

    def evaluate(self, function: str, argument: Any = None) -> Any:
        declaration = f"""async (text) => {{
            const [argument] = JSON.parse(text);
            return JSON.stringify([await ({function})(argument)]);
        }}"""
        told = self._do(
            "script.callFunction",
            functionDeclaration=declaration,
            awaitPromise=True,
            userActivation=True,
            target={"context": self._context},
            arguments=[{"type": "string", "value": json.dumps([argument])}],
        )
        if told["type"] == "exception":
            raise PageError(told["exceptionDetails"]["text"])
        return json.loads(told["result"]["value"])[0]

    def close(self) -> None:
        self._do("browsingContext.close", context=self._context)


class Firefox:
    """Firefox, by WebDriver BiDi."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self.do("session.new", capabilities={})

    def new_page(self) -> Page:
        """A tab."""
        return _FirefoxPage(self)

    def do(self, method: str, **params: Any) -> Any:
        """Have a command carried out; its result."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while (told := json.loads(self._socket.recv(SECONDS))).get("id") != number:
            pass  # an event
        assert told["type"] == "success", told
        return told["result"]


@contextlib.contextmanager
def firefox() -> Iterator[Browser]:
    """Debian's Firefox, headless; the test is skipped without it."""
    needs_program("firefox-esr")
    with tempfile.TemporaryDirectory(prefix="firefox-", ignore_cleanup_errors=True) as profile:
        lines = [f"user_pref({json.dumps(k)}, {json.dumps(v)});" for k, v in PREFERENCES.items()]
        (Path(profile) / "user.js").write_text("\n".join(lines))
        command = ["firefox-esr", "--headless", "--no-remote", "--profile", profile]
        with _running([*command, "--remote-debugging-port", "0"], HOME=profile) as process:
            assert process.stdout
            told = (
                re.search(r"WebDriver BiDi listening on (\S+)", each) for each in process.stdout
            )
            found = next(filter(None, told))
            threading.Thread(target=process.stdout.read, daemon=True).start()
            with connect(f"{found[1]}/session", max_size=None) as socket:
                yield Firefox(socket)


# --- WebKit ---------------------------------------------------------------------------------------


class _WebKitPage:
    def __init__(self, browser: WebKit) -> None:
        self._browser = browser
        self._handle = browser.do("POST", "/window/new", type="window")["handle"]

    def goto(self, url: str) -> None:
        self._here()
        self._browser.do("POST", "/url", url=url)

    def evaluate(self, function: str, argument: Any = None) -> Any:
        script = f"""const [text, done] = arguments;
            Promise.resolve(JSON.parse(text)[0])
                .then({function})
                .then((value) => done(JSON.stringify([value])))
                .catch((error) => `${{error}}\\n${{error?.stack}}`)
                .then((error) => error && done(JSON.stringify([null, error])));"""
        self._here()
        told = self._browser.do(
            "POST", "/execute/async", script=script, args=[json.dumps([argument])]
        )
        value, *error = json.loads(told)
        if error:
            raise PageError(error[0])
        return value

    def close(self) -> None:
        self._here()
        left, *_ = self._browser.do("DELETE", "/window")
        self._browser.do("POST", "/window", handle=left)

    def _here(self) -> None:
        self._browser.do("POST", "/window", handle=self._handle)


class WebKit:
    """WebKitGTK, by WebDriver."""

    def __init__(self, url: str) -> None:
        self._session = url
        options = {"binary": str(MINIBROWSERS[-1]), "args": ["--automation"]}
        wanted = {"webkitgtk:browserOptions": options}
        made = self.do("POST", "/session", capabilities={"alwaysMatch": wanted})
        self._session = f"{url}/session/{made['sessionId']}"
        self.do("POST", "/timeouts", script=int(SECONDS * 1000))

    def new_page(self) -> Page:
        """A window: what is in a tab behind another has slow timers."""
        return _WebKitPage(self)

    def do(self, method: str, path: str, **body: Any) -> Any:
        """Have a command carried out; its result."""
        data = json.dumps(body).encode() if method == "POST" else None
        request = urllib.request.Request(self._session + path, data, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise PageError(error.read().decode()) from None


@contextlib.contextmanager
def webkit() -> Iterator[Browser]:
    """Debian's WebKitGTK; the test is skipped without it."""
    for name in ("WebKitWebDriver", "Xvfb"):
        needs_program(name)
    screen = ["Xvfb", "-displayfd", "1", "-screen", "0", "1280x900x24", "-nolisten", "tcp"]
    with (
        tempfile.TemporaryDirectory(prefix="webkit-", ignore_cleanup_errors=True) as home,
        _running(screen) as shown,
    ):
        assert shown.stdout
        display = f":{shown.stdout.readline().strip()}"
        port = free_port()
        driver = ["WebKitWebDriver", f"--port={port}"]
        places = {"HOME": home, "XDG_RUNTIME_DIR": home}
        with _running(driver, subprocess.DEVNULL, DISPLAY=display, **places):
            until(lambda: _is_open(port), 30)
            browser = WebKit(f"http://127.0.0.1:{port}")
            yield browser
            browser.do("DELETE", "")


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def _running(
    command: list[str], stdout: int = subprocess.PIPE, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """A program of its own process group, which ends with the tests."""
    with subprocess.Popen(
        command,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
        preexec_fn=lambda: tie(signal.SIGKILL),
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


ENGINES = {"firefox": firefox, "webkit": webkit}
