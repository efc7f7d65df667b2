"""What the pages say exists: settings with their defaults, files, commands and targets."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands

from tests.node import ROOT

PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)  # CHANGELOG.md tells of what is gone, too
EXAMPLE = (ROOT / ".env.example").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`\n]+)`")
SETTING = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
FILE = re.compile(r"(?<![\w/.<*-])(?:msgnode|policies|registry|spark|tests|bench|deploy)/[\w./-]+")
COMMAND = re.compile(r"manage\.py (\w+)")
TARGET = re.compile(r"\bmake ([a-z][a-z-]*)\b")
ITEM = re.compile(r"(?<![*\w])\*([A-Z][^*|`]*[^*|`.:,])\*(?!\*)")
OF_THE_CONSOLE = {
    "connectors.md", "console.md", "federation.md", "identity.md", "install.md", "launch.md",
    "metrics.md", "operations.md", "policies.md", "qos.md", "registry.md", "reports.md",
    "security.md",
}  # fmt: skip
OF_OTHERS = {"PIP_INDEX_URL", "PYSPARK_PYTHON", "SO_REUSEPORT", "UV_DEFAULT_INDEX"}
NOT_FILES = ("registry/updated",)  # a path of HTTP


def test_the_settings_named_are_there() -> None:
    known = set(re.findall(r"^#?([A-Z_]+)=", EXAMPLE, re.MULTILINE))
    named = {
        (page.name, name)
        for page in PAGES
        for code in CODE.findall(_text(page))
        for name in SETTING.findall(code)
    }
    constants = _constants()
    wrong = {(page, name) for page, name in named if name not in known | constants | OF_OTHERS}
    assert sorted(wrong) == []


def test_the_files_named_are_there() -> None:
    wrong = {
        (page.name, path)
        for page in PAGES
        for code in CODE.findall(_text(page))
        for path in FILE.findall(code)
        if path not in NOT_FILES
        and not any((ROOT / f"{path.rstrip('.')}{suffix}").exists() for suffix in ("", ".py"))
    }
    assert sorted(wrong) == []


def test_the_commands_named_are_there() -> None:
    known = set(get_commands())
    wrong = {
        (page.name, command)
        for page in PAGES
        for command in COMMAND.findall(_text(page))
        if command not in known
    }
    assert sorted(wrong) == []


def test_the_targets_named_are_there() -> None:
    known = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    named = {(page.name, each) for page in PAGES for each in TARGET.findall(_code(_text(page)))}
    assert sorted((page, each) for page, each in named if each not in known) == []


def test_the_items_of_the_console_that_are_named_are_there() -> None:
    """Pages for operators name pages, buttons and fields in italics, with a capital."""
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for package in ("msgnode", "policies", "registry", "spark", "templates")
        for path in (ROOT / package).rglob("*.*")
        if path.suffix in (".py", ".html", ".js") and "tests" not in path.parts
    )
    named = {
        (page.name, part)
        for page in (ROOT / "docs" / name for name in OF_THE_CONSOLE)
        for item in ITEM.findall(_text(page))
        for part in re.split(r" → |, ", " ".join(item.split()))
    }
    assert len(named) > 40
    wrong = {each for each in named if each[1] not in code and not each[1].startswith("Can ")}
    assert sorted(wrong) == []


def test_env_example_shows_the_defaults_of_the_code() -> None:
    shown = dict(re.findall(r"^#([A-Z_]+)=(.*)$", EXAMPLE, re.MULTILINE))
    read = _defaults()
    assert len(read) > 50
    differ = {
        name: (shown[name], default)
        for name, default in read.items()
        if default != "" and _plain(shown[name]) != _plain(default)  # "": an example is shown
    }
    assert differ == {}


def test_each_threat_is_shown_by_a_test_and_enforced_in_a_place_that_are_there() -> None:
    table = _text(ROOT / "docs" / "security.md").split("## Threats")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    for row in rows:
        assert CODE.findall(row[3]), row  # test_the_files_named_are_there looks for them
        (named,) = CODE.findall(row[4])
        file, _, name = named.partition("::")
        assert re.search(rf"^(async )?def {name}\(", _text(ROOT / file), re.MULTILINE), named


@pytest.mark.long
def test_the_site_is_not_built_with_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    """The command is that of `make docs`, which builds all of the site as it is."""
    for path in ROOT.iterdir():
        if path.name not in ("docs", "var", "mkdocs.yml"):
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "assets").symlink_to(ROOT / "docs" / "assets")
    for name in ("hooks.py", "glossary.md", "index.md", "sessions.md"):
        shutil.copy(ROOT / "docs" / name, tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    reasons = {
        "nowhere.md": "nowhere.md",
        "sessions.md#nowhere": "#nowhere",
        "../msgnode/nowhere.py": "there is no msgnode/nowhere.py",
    }
    page = tmp_path / "docs" / "glossary.md"
    links = "\n".join(f"[a link]({link})" for link in reasons)
    page.write_text(f"{_text(page)}\n{links}\n", encoding="utf-8")
    command = re.search(r"\$\(BIN\)/mkdocs ([^#\n]*)", MAKEFILE)
    assert command
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *command[1].split()],
        cwd=tmp_path,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    for reason in reasons.values():  # each of which ends the build
        assert any(reason in line for line in told), done.stderr


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _code(text: str) -> str:
    """What is set as code: in fences, indented, or between backticks."""
    fenced = re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^ {4}.*$", text, re.MULTILINE)
    return "\n".join([*fenced, *indented, *CODE.findall(text)])


def _constants() -> set[str]:
    """Names in capitals that our code has: constants, keys and class attributes."""
    found: set[str] = set()
    for package in ("msgnode", "policies", "registry", "spark", "tests", "bench"):
        for path in (ROOT / package).rglob("*.py"):
            found.update(SETTING.findall(path.read_text(encoding="utf-8")))
    return found


def _defaults() -> dict[str, Any]:
    """Settings whose default is written in one expression of constants; of two modes, the
    embedded one's."""
    found: dict[str, Any] = {}
    for path in (ROOT / "msgnode" / "settings").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _is_env(node.func) and node.args:
                default = next(
                    (each.value for each in node.keywords if each.arg == "default"), None
                )
                if default is not None and isinstance(node.args[0], ast.Constant):
                    try:
                        found[str(node.args[0].value)] = _value(default)
                    except ValueError:
                        continue  # it depends on more than the mode
    return found


def _is_env(function: ast.expr) -> bool:
    base = function.value if isinstance(function, ast.Attribute) else function
    return isinstance(base, ast.Name) and base.id == "env"


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value):
            return value
        case ast.List(elts):
            return ",".join(str(_value(each)) for each in elts)
        case ast.BinOp(left, ast.Mult(), right):
            return _value(left) * _value(right)
        case ast.Compare(ast.Name("NODE_MODE"), [ast.Eq()], [ast.Constant(mode)]):
            return mode == "embedded"
        case ast.IfExp(test, body, orelse):
            return _value(body if _value(test) else orelse)
    raise ValueError(ast.dump(node))


def _plain(value: Any) -> str:
    text = str(value).lower()
    try:
        return str(float(text))
    except ValueError:
        return text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_begins_with_one_title(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", _text(page), flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    assert text.startswith("# ")


NOT_SECRETS = {
    "auth.Permission.codename", "axes.AccessLog.session_hash",  # the latter is off
    "django_celery_beat.PeriodicTask.routing_key", "msgnode.Allocation.allocation_key",
    "msgnode.ConnectorScript.secrets",  # their names and origins
    "msgnode.KeptEntry.key", "msgnode.StoredMessage.key", "policies.PolicySet.key",
    "policies.Policy.key", "policies.Rule.key", "policies.DecisionEntry.passes",
    "qos.RelayAllocation.key", "registry.GlobalRecord.public_key",
    "msgnode.Revocation.token",  # digests of what is refused
    "oauth2_provider.DeviceGrant.device_code", "oauth2_provider.DeviceGrant.user_code",  # off
}  # fmt: skip
LOOKS_SECRET = re.compile(
    r"pass(?!es)|secret|token$|token_hash|_hash$|^name_hash|sealed|webhook|(?<!public_)key$|code$"
)
HAS_A_PASSWORD = re.compile(r"(?<!RUNTIME)(?<!PUBLIC)(?<!REGISTRY)(?<!RECORD)_URL$")


def test_the_table_of_secrets_has_every_secret_that_is_stored_or_set() -> None:
    from django.apps import apps

    from msgnode.identity.sealed_secrets import COLUMNS

    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    table = page.partition("## Secrets")[2].partition("### The key of the node")[0]
    named = set(CODE.findall(table))
    stored = {
        model._meta.label
        for model in apps.get_models()
        for field in model._meta.concrete_fields
        if LOOKS_SECRET.search(field.name) and not field.is_relation
        and f"{model._meta.label}.{field.name}" not in NOT_SECRETS
    }  # fmt: skip
    assert {model for _, model, _ in COLUMNS} <= stored, "the pattern finds what is known"
    settings = {
        name
        for name in re.findall(r"^#?([A-Z_]+)=", EXAMPLE, re.MULTILINE)
        if re.search(r"SECRET|PASSWORD|(?<!PUBLIC)_KEY$", name) or HAS_A_PASSWORD.search(name)
    }
    assert {"SECRET_KEY", "DATABASE_URL", "RECORD_PSEUDONYM_KEY"} <= settings
    assert sorted((stored | settings) - named) == []
