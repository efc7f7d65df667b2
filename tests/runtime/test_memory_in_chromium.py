"""R41 in Chromium: a stub that takes all memory ends sandboxes, not the page nor its runtime.

Chromium tells the automation that "the page" crashed when a frame's process did, so the page itself
says over HTTP how it is.
"""

from __future__ import annotations

import queue
import threading
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest

from tests.runtime.pages import PACKAGE, Files

SECONDS = 60.0
TAKE_MEMORY = """() => { (async () => {
    const { Runtime } = await import("/src/index.js");
    const { GOOD, MEMORY } = await import("/tests/hostile.mjs");
    const { descriptorOf } = await import("/tests/world.mjs");
    const tell = (text) => fetch(`/told?${encodeURIComponent(text)}`);
    const catalogue = async (url) => {
        const { host } = new URL(url);
        return Response.json(await descriptorOf(host, host === "f" ? MEMORY : GOOD));
    };
    const runtime = new Runtime({ domain: "d", fetch: catalogue, times: { leastRestart: 500 } });
    runtime.bus.onError(() => {});
    const from = "hyperty://d/a";
    const ask = (to) => runtime.bus.request({ type: "create", from, to, body: {} });
    await ask("hyperty://g/x");
    await tell("before");
    await ask("hyperty://f/x").catch(({ code }) => tell(`ended ${code}`));
    for (;;) {
        const { code } = await ask("hyperty://g/x").catch((error) => error);
        if (code === 200) break;
    }
    await tell("after");
})(); }"""


@pytest.mark.long
def test_r41_the_page_and_its_runtime_outlive_a_stub_that_takes_all_memory(browser: Any) -> None:
    told: queue.Queue[str] = queue.Queue()

    class Told(Files):
        def do_GET(self) -> None:
            if self.path.startswith("/told?"):
                told.put(unquote(self.path.partition("?")[2]))
                self.send_response(204)
                self.end_headers()
            else:
                super().do_GET()

    with ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *around: Told(*around, directory=str(PACKAGE))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/tests/browser/index.html")
        page.evaluate(TAKE_MEMORY)
        assert told.get(timeout=SECONDS) == "before"
        assert told.get(timeout=SECONDS) == "ended 503"
        assert told.get(timeout=SECONDS) == "after"
        server.shutdown()
