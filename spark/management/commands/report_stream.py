"""`manage.py report_stream`: the stream of reports, in the foreground."""

from __future__ import annotations

import signal
import threading
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from spark import stream


class Command(BaseCommand):
    help = (
        "Process new files of the traffic record continuously and keep the reports of the last "
        "hours up to date. `manage.py run` starts this command if REPORT_STREAM is true."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        self.stdout.write(f"following {settings.RECORD['URL']}")
        stream.follow(stop)
