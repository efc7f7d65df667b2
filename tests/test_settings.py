"""Every setting is documented, and nothing is documented that does not exist."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from environ import Env

from msgnode.settings import base
from msgnode.settings.removed import REMOVED
from tests.node import free_port

READ = re.compile(r"""\benv(?:\.\w+)?\(\s*["']([A-Z_]+)["']""")
DOCUMENTED = re.compile(r"^#?([A-Z_]+)=", re.MULTILINE)


def run(*words: str, **environment: object) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [sys.executable, *words],
        cwd=base.BASE_DIR,
        env={**kept, **{name: str(value) for name, value in environment.items()}},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_env_example_documents_every_setting_and_no_other() -> None:
    folder = Path(base.__file__).parent
    read = {name for file in folder.glob("*.py") for name in READ.findall(file.read_text())}
    documented = DOCUMENTED.findall((base.BASE_DIR / ".env.example").read_text())
    assert sorted(documented) == sorted(read)


MOST = 130
"""Settings: more than anybody reads are none. What nobody has a reason to set is a constant."""


def test_there_are_so_many_settings_each_on_a_page_and_read_in_a_test() -> None:
    """A test reads one that sets it by its name, or by what it is in Django's settings."""
    where = _settings()
    assert len(where) <= MOST
    pages = [base.BASE_DIR / "README.md", *(base.BASE_DIR / "docs").rglob("*.md")]
    told = _words(pages)
    assert sorted(where.keys() - told.keys()) == [], "on no page"
    tried = _words((base.BASE_DIR / "tests").rglob("*.py"))
    read = {
        name
        for name, (setting, key) in where.items()
        if name in tried or (tried.get(setting, set()) & tried.get(key or setting, set()))
    }
    assert sorted(where.keys() - read) == [], "in no test"


def test_a_setting_that_was_removed_is_named_when_the_node_is_started(tmp_path: Path) -> None:
    """Here the start ends at the database; what is said of settings is said before."""
    done = run(
        "manage.py", "run", DATA_DIR=tmp_path, PORT=free_port(), IDENTITY_LEEWAY=30,
        DATABASE_URL="postgres://node:hush@127.0.0.1:1/node",
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "warning: IDENTITY_LEEWAY is set, but is no setting any more: it is always 60."
    ]


def test_a_setting_that_was_removed_is_documented_no_more() -> None:
    documented = DOCUMENTED.findall((base.BASE_DIR / ".env.example").read_text())
    assert REMOVED.keys().isdisjoint(documented)


def test_env_example_changes_nothing_when_it_is_copied(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Env, "ENVIRON", {})
    Env.read_env(base.BASE_DIR / ".env.example")
    assert Env.ENVIRON == {}


def test_a_value_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(base.env.ENVIRON, "MAX_FRAME_BYTES", "1 MB")
    with pytest.raises(ImproperlyConfigured, match="MAX_FRAME_BYTES .*'1 MB'"):
        base.env.int("MAX_FRAME_BYTES")


@pytest.mark.parametrize("name", ["a+b", "100%41", "what?", "x#y", "Ü ber;"])
def test_the_database_is_in_the_data_directory_whatever_that_is_called(
    tmp_path: Path, name: str
) -> None:
    place = tmp_path / name
    asked = "from msgnode.settings import DATABASES as d; print(d['default']['NAME'])"
    done = run("-c", asked, DATA_DIR=place)
    assert (done.returncode, done.stdout.strip()) == (0, str(place / "node.sqlite3"))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("LOG_LEVEL", "loud", "LOG_LEVEL is 'loud'; it is DEBUG, INFO, WARNING or ERROR."),
        ("DATABASE_URL", "mysql://u:hush@h/n", "DATABASE_URL is not the URL of a database"),
        ("DATABASE_URL", "postgres://u:hush/x@h/n", "DATABASE_URL cannot be read. In the user's"),
        ("DATABASE_URL", "postgres://u:x?hush@h/n", "DATABASE_URL cannot be read. In the user's"),
        ("DATABASE_URL", "postgres://u:12/hush@h/n", "DATABASE_URL cannot be read. In the user's"),
        ("DATABASE_URL", "nonsense://u:hush@h/n", "DATABASE_URL is not the URL of a database"),
        ("DATA_DIR", "/dev/null/x", "DATA_DIR /dev/null/x: "),
    ],
)
def test_what_cannot_be_used_is_one_line_without_a_password(
    tmp_path: Path, name: str, value: str, said: str
) -> None:
    done = run("manage.py", "node_status", **{"DATA_DIR": tmp_path, name: value})
    assert done.returncode == 1
    assert done.stderr.startswith(f"manage.py: {said}")
    assert len(done.stderr.splitlines()) == 1
    assert "hush" not in done.stderr


IN_PRODUCTION = {
    "NODE_MODE": "production", "SECRET_KEY": "s", "REDIS_URL": "redis://127.0.0.1:1",
    "DATABASE_URL": "postgres://n:p@127.0.0.1:1/n", "ALLOWED_HOSTS": "node.example",
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"HSTS": "max-age=60; includeSubDomains"}, {
            "SECURE_HSTS_SECONDS": 60, "SECURE_HSTS_INCLUDE_SUBDOMAINS": True,
            "SECURE_HSTS_PRELOAD": False, "SECURE_SSL_REDIRECT": True,
        }),
        ({"PUBLIC_URL": "http://node.example:81/x"}, {
            "SECURE_SSL_REDIRECT": False, "CSRF_TRUSTED_ORIGINS": ["http://node.example:81"],
            "SECURE_HSTS_SECONDS": 31_536_000, "SECURE_HSTS_PRELOAD": True,
        }),
        ({
            "EMAIL_URL": "smtp+tls://u:p@mail.example:587", "DEFAULT_FROM_EMAIL": "n@node.example",
            "CONSOLE_SESSION_SECONDS": 99,
        }, {
            "EMAIL_HOST": "mail.example", "EMAIL_PORT": 587, "EMAIL_USE_TLS": True,
            "EMAIL_HOST_USER": "u", "DEFAULT_FROM_EMAIL": "n@node.example",
            "SESSION_COOKIE_AGE": 99,
        }),
    ],
)  # fmt: skip
def test_what_django_does_it_is_told_in_its_words(
    tmp_path: Path, given: dict[str, object], expected: dict[str, object]
) -> None:
    asked = (
        "import json; from msgnode import settings; "
        f"print(json.dumps({{name: getattr(settings, name) for name in {list(expected)}}}))"
    )
    done = run("-c", asked, DATA_DIR=tmp_path, **IN_PRODUCTION, **given)
    assert json.loads(done.stdout) == expected


def test_a_header_without_an_age_is_named(tmp_path: Path) -> None:
    done = run("manage.py", "check", DATA_DIR=tmp_path, **IN_PRODUCTION, HSTS="preload")
    assert done.stderr == "manage.py: HSTS is 'preload'; it needs a max-age=, in seconds.\n"


def test_a_command_for_a_database_without_tables_is_refused_in_one_line(tmp_path: Path) -> None:
    done = run("manage.py", "node_status", DATA_DIR=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("CommandError: The database refuses: no such table")
    assert len(done.stderr.splitlines()) == 1


def test_a_command_of_django_for_a_database_that_is_away_is_refused_in_one_line(
    tmp_path: Path,
) -> None:
    away = "postgres://node:hush@127.0.0.1:1/node"
    done = run("manage.py", "migrate", "--no-input", DATA_DIR=tmp_path, DATABASE_URL=away)
    assert done.returncode == 1
    assert done.stderr.startswith("manage.py: the database refuses: connection failed")
    assert len(done.stderr.splitlines()) == 1


def _words(files: Iterable[Path]) -> dict[str, set[Path]]:
    """The names in capitals, each with the files that have it."""
    found: dict[str, set[Path]] = {}
    for file in files:
        for word in set(re.findall(r"\b[A-Z][A-Z_]+\b", file.read_text(encoding="utf-8"))):
            found.setdefault(word, set()).add(file)
    return found


def _settings() -> dict[str, tuple[str, str | None]]:
    """Each variable that is read: the setting of Django's that it becomes, and the key in that."""
    found: dict[str, tuple[str, str | None]] = {}
    for file in Path(base.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Assign([ast.Name(setting)], value) | ast.AnnAssign(
                    ast.Name(setting), value=ast.expr() as value
                ):
                    keys = value.keys if isinstance(value, ast.Dict) else [None]
                    values = value.values if isinstance(value, ast.Dict) else [value]
                    for key, part in zip(keys, values, strict=True):
                        named = key.value if isinstance(key, ast.Constant) else None
                        for name in READ.findall(ast.unparse(part)):
                            found[name] = (setting, named)
    found.setdefault("DATABASE_URL", ("DATABASES", None))  # read in a function
    return found
