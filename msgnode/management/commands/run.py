"""Run a whole node in the foreground.

Several workers and no Redis named: the command begins again with one of its own in its environment,
because settings are read once.

Order: faults that can be named beforehand (port, settings, data directory, disk, database, Redis),
Django's checks, tables, operator's account, the node started, it answers, one line `ready`; then
worker and beat, so that they do not hold it up, and a line when they run; then wait for Ctrl-C or
SIGTERM. What an earlier start has checked and migrated is not done again while nothing has changed,
and the apps, which take two seconds, are not loaded for it.

The node gets the time it needs, as long as it shows signs of life. What becomes of worker and beat
does not end it (launch/background.py).
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from types import FrameType
from typing import Any

import django
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgnode.checks import check_node
from msgnode.launch import prepare, prepared, readiness, second
from msgnode.launch.background import Background, signs_of_life
from msgnode.launch.error_messages import StartFailed
from msgnode.launch.programs import Programs
from msgnode.launch.readiness import Address, remove_address, write_address
from msgnode.launch.stopping import Make, StopFlag
from msgnode.launch.when_ready import WhenReady
from msgnode.resources import SHARED

LOOK_SECONDS = 1.0
SAY_SECONDS = 30.0
STUCK_SECONDS = 300.0


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
        self.make = Make()
        signal.signal(signal.SIGINT, self._on_stop_signal)
        signal.signal(signal.SIGTERM, self._on_stop_signal)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup means it
            signal.signal(signal.SIGHUP, self._on_stop_signal)
        limits = settings.NODE
        stop_seconds = limits["DRAIN_STAGGER"] + 2 * limits["DRAIN_SECONDS"] + 5
        programs = Programs(SHARED / "supervisord.conf", settings.DATA_DIR, stop_seconds)
        try:
            prepare.check_port(settings.HOST, settings.PORT)
            self._check_settings()
            prepare.check_owner(settings.DATA_DIR)
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

    def _check_settings(self) -> None:
        faults = [each for each in check_node() if each.is_serious() and not each.is_silenced()]
        if faults:
            lines = (f"({each.id}) {each.msg} {each.hint or ''}".strip() for each in faults)
            raise StartFailed("\n".join(lines))
        for line in settings.REMOVED_SETTINGS:
            self._say(f"warning: {line}")

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
        redis = prepare.own_redis(settings.DATA_DIR)
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
        prepare.check_disk(settings.DATA_DIR)
        prepare.clear_remains(settings.DATA_DIR)
        prepare.look_at_log(self._say)
        prepare.check_database()
        if "NODE_REDIS" not in os.environ:  # else it is started with the others
            prepare.check_redis(settings.REDIS_URL)
        if not prepared.is_known(settings.DATA_DIR):
            django.setup()
            self.check()
            self._say("preparing: settings are valid, looking at the database")
            prepare.migrate(prepared.version_before(settings.DATA_DIR), self._say)
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
            background = Background(programs, self._say)
            background.write(programs.pid)
            if self._wait_until_ready(programs):
                write_address(settings.DATA_DIR, Address(self._place(), settings.DOMAIN))
                self._say(self._ready_line())
                if beside := os.environ.get("NODE_BESIDE"):
                    named = f"{settings.DOMAIN}@{settings.PUBLIC_URL}"
                    self._say(f"two domains: http://{beside}/?with={named}#two-domains")
                self._keep(programs, background, more)
        finally:
            more.stop()
            remove_address(settings.DATA_DIR)
            (settings.DATA_DIR / "background.json").unlink(missing_ok=True)
            went = programs.stop()
        self._say("stopped" if went else "stopped; not everything ended in time and was killed")

    def _wait_until_ready(self, programs: Programs) -> bool:
        """True when the node answers, False when we are told to stop before.

        Nothing may end before. A node that does nothing at all for STUCK_SECONDS has failed.
        """
        self.pids: dict[str, int] = {}
        name = readiness.name_of_ours(settings.ALLOWED_HOSTS, settings.DOMAIN)
        began = said = lived = time.monotonic()
        signs: list[object] = []
        while not self._must_stop(0.1):
            seen = programs.look()
            for program in seen:
                if program.has_failed:
                    raise StartFailed(f"{program.name} does not start: {programs.cause(program)}")
                self.pids[program.name] = program.pid
            if readiness.node_is_ready(settings.HOST, settings.PORT, name, settings.WORKERS):
                return True
            now = time.monotonic()
            before, signs = signs, [signs_of_life(p.pid, programs.log(p.name)) for p in seen]
            if signs != before:
                lived = now
            elif now - lived > STUCK_SECONDS:
                raise StartFailed(
                    f"the node has shown no sign of life for {STUCK_SECONDS:.0f} seconds; "
                    f"see {programs.log('node')}"
                )
            if now - said > SAY_SECONDS:
                said = now
                self._say(f"still starting, for {now - began:.0f} seconds: {programs.last('node')}")
        return False

    def _keep(self, programs: Programs, background: Background, more: WhenReady) -> None:
        """Until we are told to stop; what becomes of the programs is said."""
        has_begun = False
        while not self._must_stop(LOOK_SECONDS):
            seen = programs.look()
            programs.start_waiting(seen)
            background.look({program.name: program for program in seen})
            background.write(programs.pid)
            if background.all_run and not has_begun:
                has_begun = True
                self._say("in the background: worker and beat, for tasks and reports")
                more.start()
            more.look()
            for program in seen:
                before = self.pids.get(program.name)
                if program.pid and program.pid != before:
                    self.pids[program.name] = program.pid
                    if before and not background.has_problem(program.name):
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
