"""Forms of the console: input is parsed as the language parses it, before it is saved."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
from django import forms
from django.utils import timezone
from django.utils.functional import lazy
from unfold.widgets import (
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from msgnode.core import json_text
from policies.enforcement.environment import local, zone
from policies.engine.documents import DocumentReader
from policies.engine.grammar import ConditionReader
from policies.engine.language import Problem
from policies.models import Policy, PolicySet, PolicyTest, Rule

from .cases import BASE
from .drafts import draft_lists
from .presets import names, summary

Remark = tuple[str, str]
"""Where in a layer, and what is to be said of it."""
LAYERS = {"set": "policy_set", "policy": "policy", "rule": "rule"}
_FIELD_NAMES = {
    "policyCombiningAlgorithm": "algorithm",
    "ruleCombiningAlgorithm": "algorithm",
    "id": "key",
}


def review(layer: str, raw: dict[str, Any]) -> tuple[list[Remark], list[Remark]]:
    """What is wrong in one layer without its children, and what this language writes otherwise."""
    reader = ConditionReader(draft_lists())
    getattr(DocumentReader(reader), LAYERS[layer])(raw, "$", "new")
    return _inside(reader.problems), _inside(reader.warnings)


def _inside(remarks: list[Problem]) -> list[Remark]:
    return [(remark.path.removeprefix("$").lstrip("."), remark.text) for remark in remarks]


class JsonWidget(UnfoldAdminTextareaWidget):
    """A textarea whose JSON is checked while it is typed (policies/editor.js)."""

    def __init__(self, layer: str, rows: int) -> None:
        super().__init__({
            "rows": rows,
            "spellcheck": "false",
            "data-policy-layer": layer,
            "style": "font-family:ui-monospace,monospace",
        })  # fmt: skip

    def format_value(self, value: Any) -> Any:
        """Indented, as people read it."""
        if isinstance(value, str):
            try:
                decoded = json_text.decode_document(value.encode())
            except json_text.UNREADABLE:
                return value
            return msgspec.json.format(msgspec.json.encode(decoded), indent=2).decode()
        return super().format_value(value)


class JsonField(forms.JSONField):
    """JSON of any depth, each key once: what is not is a fault like any other."""

    def to_python(self, value: Any) -> Any:
        """The decoded value."""
        try:
            if isinstance(value, str) and value:
                with suppress(msgspec.DecodeError):  # said below
                    json_text.decode_document(value)
            return super().to_python(value)
        except json_text.UnfitDocument as error:
            raise forms.ValidationError(str(error), code="invalid") from None
        except RecursionError:
            raise forms.ValidationError("nested too deeply", code="invalid") from None

    def bound_data(self, data: Any, initial: Any) -> Any:
        """What was typed, shown again."""
        try:
            with suppress(msgspec.DecodeError):
                json_text.decode_document(data or "null")
            return super().bound_data(data, initial)
        except (json_text.UnfitDocument, RecursionError):
            return forms.fields.InvalidJSONInput(data)


HELP = {
    "target": "Which messages it is about; {} matches every message.",
    "condition": 'When the effect applies: {"srcUsername": {"equals": "eve@a.org"}}; {}: always.',
    "obligations": 'What is done with the decision. A rule: {"inform": "…"}; a policy or set by '
    'decision: {"deny": {"inform": "…"}}.',
    "advice": "Like obligations, but the node may skip them.",
}
ROWS = {"condition": 12, "obligations": 5, "advice": 2}

_JSON_FIELDS = dict.fromkeys(("target", "condition", "obligations", "advice", "case"), JsonField)


class _LayerForm(forms.ModelForm):
    layer = ""
    json_fields: tuple[str, ...] = ("target", "obligations", "advice")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in self.json_fields:
            if name in self.fields:
                self.fields[name].widget = JsonWidget(self.layer, ROWS.get(name, 3))
                self.fields[name].help_text = HELP[name]

    def document(self, data: dict[str, Any]) -> dict[str, Any]:
        """What was typed, in the words of the language."""
        raw: dict[str, Any] = {"id": data.get("key") or "new"}
        for name in self.json_fields:
            value = data.get(name)
            raw[name] = {} if value is None or value == "" else value
        return raw

    def clean(self) -> dict[str, Any]:
        """Every fault at the field it stands in, with its path."""
        data: dict[str, Any] = super().clean() or self.cleaned_data
        try:
            problems, _ = review(self.layer, self.document(data))
        except RecursionError:
            problems = [("condition", "nested too deeply")]
        for path, text in problems:
            field = path.split(".")[0].split("[")[0]
            field = _FIELD_NAMES.get(field, field)
            where = path if path else "here"
            self.add_error(field if field in self.fields else None, f"{where}: {text}")
        for name in self.json_fields:
            if name in data and data[name] is None:
                data[name] = {}
        return data


class PolicySetForm(_LayerForm):
    """A set without its policies."""

    layer = "set"

    class Meta:
        model = PolicySet
        fields = "__all__"
        field_classes = _JSON_FIELDS


class PolicyForm(_LayerForm):
    """A policy without its rules."""

    layer = "policy"

    class Meta:
        model = Policy
        fields = "__all__"
        field_classes = _JSON_FIELDS


class RuleForm(_LayerForm):
    """A rule."""

    layer = "rule"
    json_fields = ("target", "condition", "obligations", "advice")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is None and "policy" in self.fields:
            self.fields["policy"].required = False
            self.fields["policy"].help_text = (
                "Empty: the policy “rules” of the set “console”; created in shadow mode if it does "
                "not exist."
            )

    class Meta:
        model = Rule
        fields = "__all__"
        field_classes = _JSON_FIELDS

    def document(self, data: dict[str, Any]) -> dict[str, Any]:
        """With its effect."""
        return {**super().document(data), "effect": data.get("effect", "deny")}


class PolicyTestForm(forms.ModelForm):
    """A test case that can at least be run."""

    class Meta:
        model = PolicyTest
        fields = "__all__"
        field_classes = _JSON_FIELDS

    def clean_case(self) -> Any:
        """A case says what it expects."""
        case = self.cleaned_data["case"]
        if not isinstance(case, dict) or "expect" not in case:
            raise forms.ValidationError('A case is a map that says what to "expect".')
        return case


class PublishForm(forms.Form):
    """What a version is published for."""

    note = forms.CharField(
        max_length=255, required=False, widget=UnfoldAdminTextInputWidget(),
        help_text="What changes and why.",
    )  # fmt: skip


class ImportForm(forms.Form):
    """A policy file for the draft."""

    file = forms.FileField(
        required=False,
        help_text="A policy file of this node or of the field, policies of a runtime, or a bundle.",
    )
    readymade = forms.ChoiceField(
        label="or one that comes with the node", required=False, widget=UnfoldAdminSelectWidget(),
        choices=lambda: [("", "none"), *((n, f"{n}: {summary(n)}") for n in names())],
    )  # fmt: skip
    mode = forms.ChoiceField(
        choices=[*PolicySet.Mode.choices, ("", "as the file says, else off")],
        initial="off",
        required=False,
        widget=UnfoldAdminSelectWidget(),
        help_text="Sets with the same id are replaced. Nothing takes effect before you publish it.",
    )

    def clean(self) -> dict[str, Any]:
        """One source."""
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if bool(data.get("file")) == bool(data.get("readymade")):
            raise forms.ValidationError("Choose a file, or one that comes with the node.")
        return data


def _about_now() -> str:
    return f"Such as 2017-03-15T12:00:00, in {zone()}; empty: this moment."


class PlaygroundForm(forms.Form):
    """A message and its circumstances."""

    entry = forms.CharField(required=False, max_length=20, widget=forms.HiddenInput())
    message = forms.CharField(
        widget=UnfoldAdminTextareaWidget({"rows": 8, "spellcheck": "false"}),
        initial=msgspec.json.format(msgspec.json.encode(BASE), indent=2).decode(),
    )
    against = forms.ChoiceField(choices=[], widget=UnfoldAdminSelectWidget())
    direction = forms.ChoiceField(
        choices=[("in", "in: from its sender"), ("out", "out: to its recipient")],
        widget=UnfoldAdminSelectWidget(),
    )
    username = forms.CharField(required=False, widget=UnfoldAdminTextInputWidget())
    issuer = forms.CharField(required=False, widget=UnfoldAdminTextInputWidget())
    groups = forms.CharField(
        required=False, widget=UnfoldAdminTextInputWidget(), help_text="Separated by spaces."
    )
    now = forms.CharField(
        required=False, widget=UnfoldAdminTextInputWidget(), help_text=lazy(_about_now, str)()
    )
    facts = forms.CharField(
        required=False, widget=UnfoldAdminTextInputWidget(),
        help_text='Values of other attributes, such as {"rate.srcSession.minute": 51}.',
    )  # fmt: skip

    def clean_message(self) -> dict[str, Any]:
        """A JSON object."""
        return _object(self.cleaned_data["message"], "The message")

    def clean_facts(self) -> dict[str, Any]:
        """A JSON object, or nothing."""
        return _object(self.cleaned_data["facts"] or "{}", "This")

    def clean_now(self) -> str:
        """A date and time."""
        now = self.cleaned_data["now"] or local(timezone.now())
        try:
            datetime.fromisoformat(now)
        except ValueError:
            raise forms.ValidationError("Expected a time such as 2017-03-15T12:00:00.") from None
        return now

    def case(self) -> dict[str, Any]:
        """The same as a test case."""
        data = self.cleaned_data
        case = {"msg": data["message"], "now": data["now"], "direction": data["direction"]}
        if data["username"]:
            case.update(user=data["username"], idp=data["issuer"])
        if data["groups"]:
            case["groups"] = data["groups"].split()
        if data["facts"]:
            case["pip"] = data["facts"]
        return case


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise forms.ValidationError(f"{what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise forms.ValidationError(f"{what} is not a JSON object.")
    return value
