"""Pages of the console beside the lists: check and publish, import and export, playground.

All of them ask for the rights on policies of the user who looks (view to look, change to act).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
from django.contrib import admin, messages
from django.contrib.auth.decorators import permission_required
from django.core.exceptions import PermissionDenied
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.utils import timezone

from msgnode.core.errors import NodeError
from msgnode.core.redaction import MASK
from policies.apps import PoliciesConfig
from policies.authoring.cases import facts_of
from policies.authoring.drafts import add_bundle, draft_document, draft_lists, warnings_of
from policies.authoring.explain import explain
from policies.authoring.forms import ImportForm, PlaygroundForm, PublishForm
from policies.authoring.live_messages import messages_now
from policies.authoring.replay import REPLAYED, replay
from policies.authoring.transfer import read_bundle, write_bundle
from policies.enforcement.defaults import rewrites_of, verdict
from policies.enforcement.snapshot import EMPTY_SNAPSHOT, PolicySnapshot, make_snapshot
from policies.engine.documents import read_document
from policies.engine.language import PolicyError
from policies.engine.pdp import compile_sets
from policies.engine.rewriting import rewritten

from .authoring import pap, presets, standing
from .enforcement import environment
from .models import DecisionEntry, PolicySet, PolicyTest, Rule, Version

RECENT = 50
TOP = 20
MAX_WARNINGS = 20
SHOWN = "shown"
"""The hidden field with a mark of what a page has shown that asks for confirmation."""
NAMED = 3
"""Senders that are named beside a button."""
NO_RECORD = "What it would have done cannot be told: this node keeps no record (RECORD=false)."
_MAY_VIEW = permission_required("policies.view_policyset", raise_exception=True)


def publish_page(request: HttpRequest) -> HttpResponse:
    """What would be published: the check, the difference; and the button."""
    acts = request.method == "POST"
    if not request.user.has_perm("policies.add_version" if acts else "policies.view_version"):
        raise PermissionDenied
    form = PublishForm(request.POST or None)
    if acts and form.is_valid():
        try:
            note, shown = form.cleaned_data["note"], request.POST.get(SHOWN, "")
            version = pap.publish(request.user, note, shown)
        except pap.ChangedMeanwhile:
            messages.error(
                request,
                "Nothing is published: the draft has changed since you opened this page, or "
                "another version is in force. Here it is as it is now; publish it if you still "
                "mean it.",
            )
        except pap.NotFit:
            messages.error(request, "The draft is not fit for publication; see below.")
        else:
            messages.success(request, f"Version {version.number} is published.")
            return redirect("admin:policies_version_changelist")
    shown = pap.mark_of_draft()  # first: what changes after it is noticed
    current = pap.current()
    report = pap.check_draft()
    context = {
        "title": "Publish the draft",
        "form": form,
        "shown": shown,
        "report": report,
        "current": current,
        "difference": pap.difference(current, None),
        "changes": standing.changes(current, None),
    }
    return _page(request, "policies/publish.html", context)


@permission_required("policies.add_version", raise_exception=True)
def roll_back(request: HttpRequest, number: int) -> HttpResponse:
    """Publish an earlier version again: what would change, and the button."""
    version = get_object_or_404(Version, number=number)
    current = pap.current()
    if request.method == "POST":
        try:
            new = pap.roll_back(version, request.user, _number_in_force(request))
        except pap.ChangedMeanwhile as error:
            text = f"Nothing is published: {error}. Here is what would change now."
            messages.error(request, text)
            return redirect("admin:policies_roll_back", number)
        except (pap.NotFit, pap.InForce, PolicyError) as error:
            messages.error(request, f"Version {number} cannot be published again: {error}")
        else:
            text = f"Version {new.number} is published: as version {number} was."
            messages.success(request, f"{text} The draft is as it was before.")
        return redirect("admin:policies_version_changelist")
    context = {
        "title": f"Roll back to version {number}",
        "version": version,
        "current": current,
        "is_in_force": current is not None and current.number == number,
        "difference": pap.difference(current, version),
        "changes": standing.changes(current, version),
    }
    return _page(request, "policies/roll_back.html", context)


def _number_in_force(request: HttpRequest) -> int | None:
    """The number of the version that the page has shown to be in force."""
    shown = request.POST.get(SHOWN, "")
    return int(shown) if _is_number(shown, 9) else None


@permission_required("policies.add_policyset", raise_exception=True)
def import_page(request: HttpRequest) -> HttpResponse:
    """A policy file into the draft."""
    form = ImportForm(request.POST or None, request.FILES or None)
    problems: list[Any] = []
    if request.method == "POST" and form.is_valid():
        try:
            file, mode = form.cleaned_data["file"], form.cleaned_data["mode"] or None
            if file:
                bundle = read_bundle(file.read())
            else:
                bundle = presets.bundle(form.cleaned_data["readymade"])
            added = add_bundle(bundle, mode, keep_lists=not file)
        except PolicyError as error:
            problems = error.problems
        else:
            for warning in warnings_of(bundle)[:MAX_WARNINGS]:
                messages.warning(request, f"Accepted, but written differently here: {warning}")
            messages.success(request, f"{added} sets are in the draft; publish them to act.")
            return redirect("admin:policies_policyset_changelist")
    context = {"title": "Import policies", "form": form, "problems": problems}
    return _page(request, "policies/import.html", context)


@_MAY_VIEW
def export_file(request: HttpRequest) -> HttpResponse:
    """The draft, or a version, as a file."""
    if "version" in request.GET:
        number = request.GET["version"]
        if not _is_number(number, 9):
            raise Http404
        version = get_object_or_404(Version, number=number)
        name = f"policies-{version.number}.json"
        text = write_bundle(version.document, version.lists, version.number)
    else:
        name, text = "policies-draft.json", write_bundle(draft_document(), draft_lists())
    response = HttpResponse(text, content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@_MAY_VIEW
def playground(request: HttpRequest) -> HttpResponse:
    """Try a message against the draft or a version, and see why it is decided as it is."""
    versions = list(Version.objects.values_list("number", flat=True)[:RECENT])
    taken = request.POST.get("take")
    form = PlaygroundForm(
        request.POST if request.POST and not taken else None,
        initial={"message": pretty(taken)} if taken else _from_entry(request),
    )
    choices = [("draft", "the draft")] + [(str(n), f"version {n}") for n in versions]
    if versions:
        choices[1] = (str(versions[0]), f"version {versions[0]}, in force")
    form.fields["against"].choices = choices  # type: ignore[attr-defined]
    logged = _logged(form["entry"].value())
    context: dict[str, Any] = {
        "title": "Playground",
        "form": form,
        "logged": logged,
        "is_masked": MASK in str(form["message"].value() or ""),
        "recent": DecisionEntry.objects.all()[:RECENT],
        "may_watch": request.user.has_perm("policies.change_policyset"),
        "may_keep": request.user.has_perm("policies.add_policytest"),
    }
    if "watch" in request.GET and context["may_watch"]:
        seen = messages_now(others=PoliciesConfig.installed().messages_of_others)
        passing = [msgspec.json.encode(each).decode() for each in seen]
        context.update(passing=passing, watched=True)
    if request.method == "POST" and form.is_valid():
        try:
            context.update(_tried(form))
        except PolicyError as error:
            context["problems"] = error.problems
        except (NodeError, ValueError, TypeError, AttributeError) as error:
            form.add_error("message", str(error))
        else:
            if "keep" in request.POST and context["may_keep"]:
                name = _free_name()
                case = {**form.case(), "expect": context["outcome"].effect.value}
                PolicyTest.objects.create(name=name, case=case)
                messages.success(request, f"Kept as the test {name!r}.")
    return _page(request, "policies/playground.html", context)


@_MAY_VIEW
def shadow_report(request: HttpRequest) -> HttpResponse:
    """What the sets in shadow mode would have changed within a day: by rule and by sender."""
    since = timezone.now() - timedelta(days=1)
    changed = DecisionEntry.objects.filter(at__gte=since).exclude(shadow="").order_by()
    senders = changed.values("sender", "username").annotate(n=Count("pk"))
    context = {
        "title": "Shadow report",
        "total": changed.count(),
        "rules": changed.values("shadow").annotate(n=Count("pk")).order_by("-n")[:TOP],
        "senders": senders.order_by("-n")[:TOP],
        "sets": PolicySet.objects.filter(mode=PolicySet.Mode.SHADOW),
    }
    return _page(request, "policies/shadow.html", context)


@_MAY_VIEW
def replay_page(request: HttpRequest) -> HttpResponse:
    """What the draft would have decided otherwise over the record of the last hours."""
    asked = request.GET.get("hours", "1")
    hours = int(asked) if asked in ("1", "6", "24") else 1
    recorded = PoliciesConfig.installed().recorded
    context: dict[str, Any] = {
        "title": "Replay of the record",
        "hours": hours,
        "choices": ((1, "This hour"), (6, "6 hours"), (24, "24 hours")),
        "is_recorded": recorded is not None,
    }
    try:
        in_force = _snapshot_of(pap.current())
        draft = make_snapshot(draft_document(), draft_lists())
        if recorded is not None:
            kinds = recorded(timezone.now(), hours, REPLAYED)
            found = replay(kinds.most, in_force.enforced, draft.enforced, environment.defaults())
            most = max((change.both for _, change in found.hours), default=0)
            context |= {"found": found, "rows": kinds.rows, "most": most,
                        "is_whole": kinds.is_whole,
                        "rest": kinds.rows - found.looked_at - found.unknown}  # fmt: skip
    except PolicyError as error:
        context["fault"] = f"The draft cannot be read: {str(error)[:500]}"
    except OSError as error:
        context["fault"] = f"The record cannot be read: {str(error)[:300]}"
    return _page(request, "policies/replay.html", context)


def _snapshot_of(version: Version | None) -> PolicySnapshot:
    """What is in force by a version; nothing is, if none was ever published."""
    return make_snapshot(version.document, version.lists) if version else EMPTY_SNAPSHOT


WAYS = {
    "enforce": (
        "Enforce this rule",
        "Then messages are decided by it; nothing else of the draft comes into force.",
        standing.enforcing,
    ),
    "take-back": (
        "Take it back",
        "Then it is only counted, in shadow.",
        standing.taking_back,
    ),
}
"""Ways into force and out of it: the button, what is so then, and what is published."""


@permission_required(("policies.change_rule", "policies.add_version"), raise_exception=True)
def rule_force(request: HttpRequest, pk: int) -> HttpResponse:
    """What a rule would have done to the last 24 hours; posted, it is enforced or taken back."""
    rule = get_object_or_404(Rule, pk=pk)
    act = request.POST.get("act", "")
    if request.method == "POST" and act in WAYS:
        _force(request, rule, act)
        return redirect("admin:policies_rule_change", pk)
    now = standing.standing_of(rule)
    acts = ["enforce", "take-back"] if now.is_changed else ["enforce"]
    if now.state is standing.State.ENFORCED and not now.is_changed:
        acts = ["take-back"]
    elif now.state is not standing.State.ENFORCED:
        acts = ["enforce"]
    context = {"ways": [_way(rule, each) for each in acts], "no_record": NO_RECORD}
    return TemplateResponse(request, "policies/standing_effects.html", context)


def _force(request: HttpRequest, rule: Rule, act: str) -> None:
    """Publish a rule alone, and say what is in force then."""
    try:
        change = WAYS[act][2](rule)
        shown = request.POST.get(f"{SHOWN}-{act}", "")
        version = standing.apply(rule, change, request.user, shown)
    except pap.ChangedMeanwhile as error:
        messages.error(request, f"Nothing is published: {error}. Here it is as it is now.")
    except (pap.NotFit, PolicyError) as error:
        messages.error(request, f"Nothing is published: {str(error)[:500]}")
    else:
        does = "is enforced from now on" if act == "enforce" else "is only counted from now on"
        messages.success(request, f"Version {version.number} is published: this rule {does}.")


def _way(rule: Rule, act: str) -> dict[str, Any]:
    """A button, what is so then, and what it would have done to the last day."""
    title, then, made_of = WAYS[act]
    way: dict[str, Any] = {"act": act, "title": title, "then": then}
    recorded = PoliciesConfig.installed().recorded
    try:
        change = made_of(rule)
        way["mark"] = change.mark
        after = make_snapshot(change.document, change.lists).enforced
        in_force = _snapshot_of(change.newest)
        if recorded is not None:
            kinds = recorded(timezone.now(), 24, REPLAYED)
            way["found"] = replay(
                kinds.most, in_force.enforced, after, environment.defaults(), most=NAMED
            )
            if act == "enforce" and way["found"].unknown:
                alone = make_snapshot(change.alone, change.lists).enforced
                way["alone"] = replay(
                    kinds.most, EMPTY_SNAPSHOT.enforced, alone, environment.defaults(), most=NAMED
                )
    except PolicyError as error:
        way["fault"] = f"{title}: not possible. {str(error)[:500]}"
    except OSError as error:
        way["fault"] = f"The record cannot be read: {str(error)[:300]}"
    return way


def _tried(form: PlaygroundForm) -> dict[str, Any]:
    """The decision on what the form describes, and the tree of it."""
    if form.cleaned_data["against"] == "draft":
        return _decided(draft_document(), draft_lists(), form.case())
    version = Version.objects.get(number=form.cleaned_data["against"])
    return _decided(version.document, version.lists, form.case())


def why(entry: DecisionEntry) -> dict[str, Any]:
    """A decision of the log, made again by the version that made it: its tree, and what was told.

    `fault` says why that is not possible.
    """
    version = Version.objects.filter(number=entry.version).first()
    form = PlaygroundForm({**_values_of(entry), "against": "draft"})
    form.fields["against"].choices = [("draft", "")]  # type: ignore[attr-defined]
    if not form.is_valid():
        return {"fault": "The message was not kept whole, so it cannot be decided again."}
    document, lists = (version.document, version.lists) if version else ([], {})
    try:
        found = _decided(document, lists, form.case())
    except (PolicyError, NodeError, ValueError, TypeError, AttributeError) as error:
        return {"fault": f"It cannot be decided again: {str(error)[:300]}"}
    duties = found["outcome"].obligations
    texts = [str(each.value) for each in duties if each.name in ("inform", "info")]
    found["told"] = texts[0] if texts and not entry.passes else ""
    found["is_otherwise"] = found["outcome"].effect.value != entry.effect
    found["is_masked"] = MASK in entry.message
    return found


def _decided(document: Any, lists: Any, case: dict[str, Any]) -> dict[str, Any]:
    active = [each for each in document if each.get("mode", "enforce") != "off"]
    sets = read_document(active, lists)
    facts = facts_of({**case, "node": environment.node_facts()})
    outcome = compile_sets(sets).decide(facts)
    passes, auth = verdict(outcome.effect, environment.defaults())
    rewrites = rewrites_of(outcome)
    body = rewritten(facts.message.fields(), rewrites) if rewrites and passes else None
    return {
        "outcome": outcome,
        "passes": passes,
        "auth": auth,
        "body": msgspec.json.format(msgspec.json.encode(body), indent=2).decode() if body else "",
        "tree": explain(sets, facts),
        "in_shadow": [str(e.get("id")) for e in active if e.get("mode") == "shadow"],
    }


def _free_name() -> str:
    """The first name for a case of the playground that no test has."""
    taken = PolicyTest.objects.filter(name__startswith="playground ").values_list("name", flat=True)
    names, number = set(taken), 1
    while f"playground {number}" in names:
        number += 1
    return f"playground {number}"


def _logged(number: object) -> DecisionEntry | None:
    """The decision of the log with this number."""
    text = str(number or "")
    return DecisionEntry.objects.filter(pk=text).first() if _is_number(text, 18) else None


def _is_number(text: str, digits: int) -> bool:
    """Whether a query names a number, and none that the database has no room for."""
    return text.isascii() and text.isdigit() and len(text) <= digits


def _from_entry(request: HttpRequest) -> dict[str, Any]:
    """The form filled with a logged decision."""
    entry = _logged(request.GET.get("entry"))
    return _values_of(entry) if entry is not None else {}


def _values_of(entry: DecisionEntry) -> dict[str, Any]:
    """What the form has for a logged decision."""
    facts = dict(entry.facts)
    return {
        "entry": entry.pk,
        "message": pretty(entry.message),
        "username": facts.pop("srcUsername", entry.username),
        "issuer": facts.pop("srcIDP", ""),
        "groups": " ".join(facts.pop("srcGroups", ())),
        "facts": msgspec.json.encode(facts).decode() if facts else "",
        "direction": entry.direction,
        "now": environment.local(entry.at),
        "against": str(entry.version) if entry.version else "draft",
    }


def pretty(text: str) -> str:
    """JSON on lines of its own; what is none, as it is."""
    try:
        return msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:
        return text


def _page(request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
    return TemplateResponse(request, template, {**admin.site.each_context(request), **context})
