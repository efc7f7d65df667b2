"""Every setting is documented, and nothing is documented that does not exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from environ import Env

from msgnode.settings import base

READ = re.compile(r"""\benv(?:\.\w+)?\(\s*["']([A-Z_]+)["']""")
DOCUMENTED = re.compile(r"^#?([A-Z_]+)=", re.MULTILINE)


def test_env_example_documents_every_setting_and_no_other() -> None:
    folder = Path(base.__file__).parent
    read = {name for file in folder.glob("*.py") for name in READ.findall(file.read_text())}
    documented = DOCUMENTED.findall((base.BASE_DIR / ".env.example").read_text())
    assert sorted(documented) == sorted(read)


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
    kept = {each: os.environ[each] for each in ("PATH", "HOME") if each in os.environ}
    asked = "from msgnode.settings import DATABASES as d; print(d['default']['NAME'])"
    done = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=base.BASE_DIR,
        env={**kept, "DATA_DIR": str(place)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == str(place / "node.sqlite3")
