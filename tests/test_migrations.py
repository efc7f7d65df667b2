"""Migrations that workers of the version before stand: they serve on the new tables meanwhile.

What is added may be left out by who does not know it; what is taken away or renamed may not. A step
that breaks this is made in two versions: the first no longer uses it, the second takes it away.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest
from django.db import migrations
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import NOT_PROVIDED, CharField, Field

from tests.node import ROOT

OURS = ("msgnode", "policies", "qos", "registry", "spark")
# The last ones from before the first version that can be upgraded worker by worker.
BEFORE = {"msgnode": 7, "policies": 2, "qos": 3, "registry": 2, "spark": 2}
ALLOWED = (
    migrations.CreateModel, migrations.AddIndex, migrations.RemoveIndex, migrations.RenameIndex,
    migrations.AlterModelOptions, migrations.AlterModelManagers, migrations.RunPython,
)  # fmt: skip


SAID = {
    "choices",
    "help_text",
    "verbose_name",
    "validators",
    "default",
    "blank",
}  # not in the table


def widens(before: Field, after: Field) -> bool:
    """Whether a column that is another takes all that it took before."""
    one, other = before.deconstruct(), after.deconstruct()
    old, new = ({k: v for k, v in each[3].items() if k not in SAID} for each in (one, other))
    if one[1] != other[1] or old.pop("null", False) > new.pop("null", False):
        return False
    return old.pop("max_length", 0) <= new.pop("max_length", 0) and old == new


def refused(operation: Operation, before: ProjectState | None = None, app: str = "") -> bool:
    """Whether an operation may break a worker that does not know it."""
    if isinstance(operation, migrations.AlterField) and before is not None:
        model = before.models[app, operation.model_name_lower]
        return not widens(model.fields[operation.name], operation.field)
    if isinstance(operation, migrations.AddField):
        field = operation.field
        is_optional = field.null or field.db_default is not NOT_PROVIDED or field.many_to_many
        return not is_optional
    if isinstance(operation, migrations.SeparateDatabaseAndState):
        return any(map(refused, operation.database_operations))
    return not isinstance(operation, ALLOWED)


def wrong_operations() -> Iterator[tuple[str, str]]:
    loader = MigrationLoader(None, ignore_no_migrations=True, replace_migrations=False)
    for (app, name), migration in sorted((loader.disk_migrations or {}).items()):
        if app in OURS and int(name.split("_")[0]) > BEFORE[app]:
            state = loader.project_state((app, name), at_end=False)
            for operation in migration.operations:
                if refused(operation, state, app):
                    yield f"{app}.{name}", operation.describe()
                operation.state_forwards(app, state)


def test_new_migrations_are_stood_by_the_version_before() -> None:
    wrong = list(wrong_operations())
    assert wrong == [], "make it in two versions, see docs/operations.md, Upgrade"


def _field(**options: object) -> migrations.AddField:
    from django.db.models import IntegerField

    return migrations.AddField("ban", "weight", IntegerField(**options))


@pytest.mark.parametrize(
    ("operation", "is_refused"),
    [
        (_field(null=True), False),
        (_field(db_default=0), False),
        (_field(default=0), True),  # Django's own default is none of the table's
        (migrations.RemoveField("ban", "reason"), True),
        (migrations.RenameField("ban", "reason", "why"), True),
        (migrations.DeleteModel("ban"), True),
        (migrations.RunSQL("DROP TABLE msgnode_ban"), True),
        (migrations.SeparateDatabaseAndState([migrations.DeleteModel("ban")]), True),
    ],
)
def test_what_the_version_before_could_not_stand_is_refused(
    operation: Operation, is_refused: bool
) -> None:
    assert refused(operation) is is_refused


@pytest.mark.parametrize(
    ("before", "after", "is_wider"),
    [
        (CharField(max_length=8), CharField(max_length=8, choices=[("a", "A")]), True),
        (CharField(max_length=8), CharField(max_length=9), True),
        (CharField(max_length=8), CharField(max_length=8, null=True), True),
        (CharField(max_length=8), CharField(max_length=7), False),
        (CharField(max_length=8, null=True), CharField(max_length=8), False),
        (CharField(max_length=8), CharField(max_length=8, unique=True), False),
    ],
)
def test_a_column_may_only_become_wider(before: Field, after: Field, is_wider: bool) -> None:
    assert widens(before, after) is is_wider


def test_what_is_replaced_is_deleted_with_1_1() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    disk = MigrationLoader(None, ignore_no_migrations=True).disk_migrations or {}
    replacing = {key for key, each in disk.items() if each.replaces and key[0] in OURS}
    assert bool(replacing) is (tuple(map(int, version.split(".")[:2])) < (1, 1))
