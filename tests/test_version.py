"""One version of the node, in pyproject.toml: what is asked for it, and what tells it, agree."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from typing import Any

import pytest
from django.test import Client

from msgnode.resources import user_agent, version
from tests.node import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]


@pytest.mark.parametrize("word", ["--version", "version"])
def test_the_command_tells_the_version_of_the_node_and_not_of_django(word: str) -> None:
    command = [sys.executable, "manage.py", word]
    said = subprocess.run(
        command, cwd=ROOT, env={"NODE_MODE": "production"}, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert said.stdout == f"{VERSION}\n", "also where the settings are wrong"


def test_the_changelog_says_what_this_version_is() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{VERSION}] - " in text


def test_what_the_node_fetches_names_its_version() -> None:
    assert (version(), user_agent()) == (VERSION, f"messaging-node/{VERSION}")


@pytest.mark.django_db
def test_each_page_of_the_console_tells_it(admin_client: Client) -> None:
    page = admin_client.get("/admin/msgnode/ban/").content.decode()
    assert f" · {VERSION}" in page


@pytest.mark.django_db
def test_the_metrics_tell_it(client: Client, settings: Any) -> None:
    settings.ROLE = "web"
    told = client.get("/metrics").content.decode()
    assert f'msgnode_build_info{{version="{VERSION}"}} 1.0' in told
