"""Run a whole node in the foreground.

Several workers and no Redis named: the command begins again with one of its own in its environment,
because settings are read once.

Order: data directory taken, faults that can be named beforehand, tables, operator's account, the
node started, it answers, one line `ready`; then worker and beat, so that they do not hold it up,
and a line when they answer; then wait for Ctrl-C or SIGTERM. What an earlier start has checked
and migrated is not done again while nothing has changed, and the apps, which take two seconds,
are not loaded for it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import django
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgnode.checks import check_node
from msgnode.launch import prepare, prepared, readiness, second
from msgnode.launch.address import Address, remove_address, write_address
from msgnode.launch.error_messages import StartFailed
from msgnode.launch.make_parent import Make
from msgnode.launch.programs import Programs
from msgnode.launch.redis import own_redis
from msgnode.launch.stop_flag import StopFlag
from msgnode.launch.when_ready import WhenReady
from msgnode.resources import SHARED

START_SECONDS = 90.0
LOOK_SECONDS = 1.0


class Command(BaseCommand):
    help = (
        "Run the node, its Celery worker and beat in the foreground until Ctrl-C or SIGTERM. "
        "Settings come from the environment. Example: PORT=9000 DATA_DIR=/tmp/second manage.py run"
    )

    requires_system_checks = []  # see `handle`

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--second",
            action="store_true",
            help="run a second node beside the first: next port, domain second.<domain>",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["second"]:
            self._begin_as_second()
        self.stopping = StopFlag()
        self.is_preparing = True
        self.is_known = prepared.is_known(settings.DATA_DIR)
        if not self.is_known or check_node():
            django.setup()
            self.check()
        self.make = Make()
        signal.signal(signal.SIGINT, self._on_stop_signal)
        signal.signal(signal.SIGTERM, self._on_stop_signal)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup means it
            signal.signal(signal.SIGHUP, self._on_stop_signal)
        limits = settings.NODE
        stop_seconds = limits["DRAIN_STAGGER"] + 2 * limits["DRAIN_SECONDS"] + 5
        programs = Programs(SHARED / "supervisord.conf", settings.DATA_DIR, stop_seconds)
        try:
            with prepare.hold(settings.DATA_DIR, stop_seconds + 10) as lock:
                if settings.WORKERS > 1 and not settings.REDIS_URL:
                    self._begin_again()
                self._prepare()
                self.is_preparing = False
                if not self.stopping.is_set:
                    self._run(programs, lock)
        except StartFailed as fault:
            raise CommandError(str(fault)) from None
        except OSError as fault:
            raise CommandError(f"DATA_DIR {settings.DATA_DIR}: {fault}") from None

    def _begin_as_second(self) -> None:
        first = {name: getattr(settings, name) for name in ("DOMAIN", "PORT", "DATA_DIR")}
        is_embedded = settings.NODE_MODE == "embedded"
        has_services = bool(settings.REDIS_URL or os.environ.get("DATABASE_URL"))
        try:
            made = second.environment(first, is_embedded, has_services, os.environ)
        except StartFailed as fault:
            raise CommandError(str(fault)) from None
        self._run_again(made)

    def _begin_again(self) -> None:
        redis = own_redis(settings.DATA_DIR)
        self._run_again(
            {
                "REDIS_URL": redis.url,
                "NODE_REDIS": redis.program,
                "NODE_REDIS_CONF": str(redis.configuration),
            }
        )

    def _run_again(self, environment: dict[str, str]) -> None:
        """Ourselves, with these variables: settings are read once."""
        os.environ.update(environment)
        sys.stdout.flush()
        words = [each for each in sys.orig_argv[1:] if each != "--second"]
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606

    def _prepare(self) -> None:
        prepare.raise_file_limit()
        prepare.clear_remains(settings.DATA_DIR)
        prepare.check_port(settings.HOST, settings.PORT)
        if "NODE_REDIS" not in os.environ:  # else it is started with the others
            prepare.check_redis(settings.REDIS_URL)
        if not self.is_known:
            self._say("preparing: settings are valid, preparing the database")
            prepare.migrate()
            prepare.make_operator(self._say)
            if fault := prepare.secrets_fault():
                self._say(f"warning: {fault}")
            else:  # else it is said at each start
                prepared.note(settings.DATA_DIR)
        self._say("starting: node, worker, beat")

    def _run(self, programs: Programs, lock: Any) -> None:
        worker = f"node-{settings.PORT}@{socket.gethostname()}"
        more = WhenReady.of_environment(self._say)
        try:
            programs.start(
                {
                    "NODE_WORKER_NAME": worker,
                    "NODE_MORE_WORKERS": str(settings.WORKERS - 1),
                    "NODE_OWN_REDIS": str(int("NODE_REDIS" in os.environ)),
                    "NODE_REDIS": os.environ.get("NODE_REDIS", ""),
                    "NODE_REDIS_CONF": os.environ.get("NODE_REDIS_CONF", ""),
                },
                lock,
            )
            background = self._points()
            if self._wait_until_ready(programs, {"node": background.pop("node")}):
                write_address(settings.DATA_DIR, Address(self._place(), settings.DOMAIN))
                self._say(self._ready_line())
                if beside := os.environ.get("NODE_BESIDE"):
                    named = f"{settings.DOMAIN}@{settings.PUBLIC_URL}"
                    self._say(f"two domains: http://{beside}/?with={named}#two-domains")
                if self._wait_until_ready(programs, background):
                    self._say("in the background: worker and beat, for tasks and reports")
                    more.start()
                    self._keep(programs, more)
        finally:
            more.stop()
            remove_address(settings.DATA_DIR)
            went = programs.stop()
        self._say("stopped" if went else "stopped; not everything ended in time and was killed")

    def _points(self) -> dict[str, Callable[[], bool]]:
        """What has to answer, by program."""
        return readiness.open_points(
            settings.HOST,
            settings.PORT,
            readiness.name_of_ours(settings.ALLOWED_HOSTS, settings.DOMAIN),
            settings.DATA_DIR,
            settings.WORKERS,
        )

    def _wait_until_ready(self, programs: Programs, points: dict[str, Callable[[], bool]]) -> bool:
        """True when all answer, False when we are told to stop before.

        Until the node is there nothing may end; after that, what is waited for may not.
        """
        self.pids: dict[str, int] = {}
        is_background = "node" not in points
        awaited = set(points)
        limit = time.monotonic() + START_SECONDS
        while points:
            if self._must_stop(0.1):
                return False
            if is_background:
                programs.start_waiting()
            for program in programs.look():
                if program.has_failed and (program.name in awaited or not is_background):
                    raise StartFailed(f"{program.name} does not start: {programs.cause(program)}")
                self.pids[program.name] = program.pid
            points = {name: answers for name, answers in points.items() if not answers()}
            if points and time.monotonic() > limit:
                raise StartFailed(
                    f"{' and '.join(points)} not ready in {START_SECONDS:.0f} seconds; "
                    f"see {settings.DATA_DIR / 'logs'}"
                )
        return True

    def _keep(self, programs: Programs, more: WhenReady) -> None:
        """Until we are told to stop; a program that was started again is said."""
        while not self._must_stop(LOOK_SECONDS):
            more.look()
            for program in programs.look():
                if program.state == "FATAL":
                    raise StartFailed(
                        f"{program.name} ends again and again: {programs.cause(program)}"
                    )
                if program.pid and program.pid != self.pids.get(program.name):
                    self.pids[program.name] = program.pid
                    self._say(
                        f"{program.name} ended and was started again; "
                        f"see {programs.log(program.name)}"
                    )

    def _must_stop(self, seconds: float) -> bool:
        return self.stopping.wait(seconds) or self.make.is_stopping()

    def _on_stop_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.stopping.set()
        if self.is_preparing:  # nothing runs yet
            raise SystemExit(0)

    def _place(self) -> str:
        return f"{readiness.in_url(readiness.reachable(settings.HOST))}:{settings.PORT}"

    def _ready_line(self) -> str:
        place = self._place()
        return (
            f"ready: page http://{place}/ · console http://{place}/admin/ · "
            f"WebSocket ws://{place}/ws · stubs ws://{place}/stub/connect · "
            f"health http://{place}/health/ready · domain {settings.DOMAIN} · "
            f"logs {settings.DATA_DIR / 'logs'}"
        )

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
