"""What axe finds on a page in a browser."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest

SETTLED = """async () => {
    // What follows a change of the colour scheme begins with a frame that is drawn after it.
    for (let n = 0; n < 2; n += 1) await new Promise((resolve) => requestAnimationFrame(resolve));
    const ending = document.getAnimations().filter((each) => {
        const { endTime } = each.effect.getComputedTiming();
        return each.playState === "running" && endTime !== Infinity;
    });
    await Promise.allSettled(ending.map((each) => each.finished));
}"""
"""Waits until what fades or slides has come to its end: half-way its colours are nobody's."""


OPTIONS = {"resultTypes": ["violations"], "preload": False}
"""Style sheets are not fetched once more: no rule that is run reads them."""


def axe_faults(page: Any, *impacts: str, but_for: str = "") -> list[str]:
    """Faults as `rule (impact): place`; of these impacts only, if any are named.

    What this selector finds, and was looked at on another page, is left out.
    """
    try:
        axe = importlib.import_module("axe_playwright_python.sync_playwright").Axe()
    except ModuleNotFoundError:
        lacks = "no axe: install axe-playwright-python"
        pytest.fail(lacks) if os.environ.get("CI") else pytest.skip(lacks)
    page.evaluate(SETTLED)
    context = {"exclude": [[but_for]]} if but_for else None
    return [
        f"{each['id']} ({each['impact']}): {each['nodes'][0]['target']}"
        for each in axe.run(page, context, OPTIONS).response["violations"]
        if not impacts or each["impact"] in impacts
    ]
