"""Migrations that workers of the version before stand: they serve on the new tables meanwhile.

What is added may be left out by who does not know it; what is taken away or renamed may not. A step
that breaks this is made in two versions: the first no longer uses it, the second takes it away.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import migrations
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.models import NOT_PROVIDED

OURS = ("msgnode", "policies", "registry", "spark")
# The last ones from before the first version that can be upgraded worker by worker.
BEFORE = {"msgnode": 7, "policies": 2, "registry": 2, "spark": 2}
ALLOWED = (
    migrations.CreateModel, migrations.AddIndex, migrations.RemoveIndex, migrations.RenameIndex,
    migrations.AlterModelOptions, migrations.AlterModelManagers, migrations.RunPython,
)  # fmt: skip


def refused(operation: Operation) -> bool:
    """Whether an operation may break a worker that does not know it."""
    if isinstance(operation, migrations.AddField):
        field = operation.field
        is_optional = field.null or field.db_default is not NOT_PROVIDED or field.many_to_many
        return not is_optional
    if isinstance(operation, migrations.SeparateDatabaseAndState):
        return any(map(refused, operation.database_operations))
    return not isinstance(operation, ALLOWED)


def new_operations() -> Iterator[tuple[str, Operation]]:
    loader = MigrationLoader(None, ignore_no_migrations=True)
    for (app, name), migration in sorted((loader.disk_migrations or {}).items()):
        if app in OURS and int(name.split("_")[0]) > BEFORE[app]:
            yield from ((f"{app}.{name}", operation) for operation in migration.operations)


def test_new_migrations_are_stood_by_the_version_before() -> None:
    wrong = [(name, each.describe()) for name, each in new_operations() if refused(each)]
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
