"""The editor's queries while a layer is being edited: errors, its sentence, changed decisions.

Input is neither stored nor applied.
"""

from __future__ import annotations

from typing import Any

import msgspec
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_POST

from msgnode.core import json_text
from policies.apps import PoliciesConfig
from policies.authoring import sentences
from policies.authoring.drafts import draft_document, draft_lists, policy_of_the_console
from policies.authoring.forms import LAYERS, review
from policies.authoring.replay import REPLAYED, Change, Replay, replay
from policies.authoring.standing import without_and_with
from policies.enforcement.snapshot import make_snapshot
from policies.engine.documents import DocumentReader
from policies.engine.grammar import ConditionReader
from policies.engine.language import PolicyError

from .enforcement import environment
from .models import Policy, Rule

_MAY_VIEW = permission_required("policies.view_policyset", raise_exception=True)
TOP = 5
_TYPED = ("target", "condition", "obligations", "advice")
_NAMES = {"set": "policy set", "policy": "policy"}


@require_POST
@_MAY_VIEW
def check_typed(request: HttpRequest) -> HttpResponse:
    """What is wrong in a field that is being typed."""
    layer, name = request.POST.get("layer", ""), request.POST.get("field", "")
    if layer not in LAYERS or name not in _TYPED:
        return JsonResponse({"problems": ["no such field"]}, status=400)
    text = request.POST.get("text", "").strip()
    warnings: list[str] = []
    try:
        value = json_text.decode_document(text) if text else {}
        raw = {name: value, **({"effect": "deny"} if layer == "rule" else {})}
        wrong, otherwise = review(layer, raw)
        problems = [f"{path}: {why}" for path, why in wrong]
        warnings = [f"{path}: {why}" for path, why in otherwise]
    except json_text.UNREADABLE as error:
        problems = [json_text.fault_of(error)]
    return JsonResponse({"problems": problems, "warnings": warnings})


@require_POST
@_MAY_VIEW
def say_typed(request: HttpRequest) -> HttpResponse:
    """What the layer says, as a sentence; what is wrong instead, if anything is."""
    layer = request.POST.get("layer", "")
    if layer not in LAYERS:
        return JsonResponse({"sentence": "", "problems": ["no such layer"]}, status=400)
    try:
        raw = _typed(request)
        if layer != "rule":
            raw = {"target": raw["target"]}
        wrong, _ = review(layer, raw)
        problems = [f"{path}: {why}" for path, why in wrong]
        sentence = "" if problems else sentence_of(layer, raw)
    except json_text.UNREADABLE as error:
        sentence, problems = "", [json_text.fault_of(error)]
    return JsonResponse({"sentence": sentence, "problems": problems})


@require_POST
@_MAY_VIEW
def try_typed(request: HttpRequest) -> HttpResponse:
    """What the rule would have changed over the record of the last hours, were it in force."""
    hours = {"1": 1, "6": 6, "24": 24}.get(request.POST.get("hours", ""), 1)
    recorded = PoliciesConfig.installed().recorded
    if recorded is None:
        return _fault("This node keeps no record (RECORD=false), so there is nothing to try it on.")
    try:
        raw = {"id": request.POST.get("key", "").strip() or "new", **_typed(request)}
        if priority := _number(request.POST.get("priority")):
            raw["priority"] = priority
        chosen = Policy.objects.filter(pk=_number(request.POST.get("policy"))).first()
        policy = chosen or policy_of_the_console(is_saved=False)
        stored = Rule.objects.filter(pk=_number(request.POST.get("rule"))).first()
        without, with_it = without_and_with(draft_document(), policy, stored, raw)
        lists = draft_lists()
        before, after = make_snapshot(without, lists), make_snapshot(with_it, lists)
        kinds = recorded(timezone.now(), hours, REPLAYED)
        found = replay(
            kinds.most, before.enforced, after.enforced, environment.defaults(), most=TOP
        )
    except json_text.UnfitDocument as error:
        return _fault(f"It cannot be read: {error}.")
    except msgspec.DecodeError as error:
        return _fault(f"It is not JSON: {error}")
    except RecursionError:
        return _fault("It is nested too deeply.")
    except PolicyError as error:
        return _fault(f"It cannot be tried yet: {str(error)[:500]}")
    except OSError as error:
        return _fault(f"The record cannot be read: {str(error)[:300]}")
    return JsonResponse({"rows": kinds.rows, "hours": hours, **_told(found)})


def sentence_of(layer: str, raw: dict[str, Any]) -> str:
    """A layer that is in order, in words."""
    conditions = ConditionReader(draft_lists())
    if layer == "rule":
        return sentences.of_rule(DocumentReader(conditions).rule(raw, "$", "new"))
    return sentences.of_target(_NAMES[layer], conditions.read(raw["target"], "$.target"))


def _typed(request: HttpRequest) -> dict[str, Any]:
    """The fields of the form as they stand there. Raises DecodeError and UnfitDocument."""
    raw: dict[str, Any] = {"effect": request.POST.get("effect", "deny")}
    for name in _TYPED:
        text = request.POST.get(name, "").strip()
        raw[name] = json_text.decode_document(text) if text else {}
    return raw


def _told(found: Replay) -> dict[str, Any]:
    def rows(changes: list[Change]) -> list[dict[str, Any]]:
        return [
            {"name": each.name, "refused": each.refused, "passed": each.passed} for each in changes
        ]

    return {
        "looked_at": found.looked_at,
        "unknown": found.unknown,
        "refused": found.refused,
        "passed": found.passed,
        "senders": rows(found.senders),
        "rules": rows(found.rules),
    }


def _number(text: str | None) -> int:
    """A whole number, 0 for anything else."""
    digits = (text or "").strip().removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 10
    return int((text or "").strip()) if is_number else 0


def _fault(why: str) -> HttpResponse:
    return JsonResponse({"fault": why})
