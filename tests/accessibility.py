"""What axe finds on a page in a browser."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def axe_faults(page: Any, *impacts: str) -> list[str]:
    """Faults as `rule (impact): place`; of these impacts only, if any are named."""
    try:
        axe = importlib.import_module("axe_playwright_python.sync_playwright").Axe()
    except ModuleNotFoundError:
        lacks = "no axe: install axe-playwright-python"
        pytest.fail(lacks) if os.environ.get("CI") else pytest.skip(lacks)
    return [
        f"{each['id']} ({each['impact']}): {each['nodes'][0]['target']}"
        for each in axe.run(page).response["violations"]
        if not impacts or each["impact"] in impacts
    ]
