"""How devices are told what waits for them, and what operators say of their topics."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from .sessions import Session


class DeviceOutlet(models.Model):
    """Where a device's session is told what waits for it, whichever worker has the session."""

    class Kind(models.TextChoices):
        WEBHOOK = "webhook"
        PUSH = "push", "push subscription"

    session = models.ForeignKey(  # a worker of a version without this table deletes sessions too
        Session, on_delete=models.CASCADE, related_name="outlets", db_constraint=False
    )
    kind = models.CharField(max_length=8, choices=Kind.choices)
    url = models.CharField(max_length=2000)
    sealed = models.TextField(blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-id",)
        constraints = (models.UniqueConstraint(fields=["session", "kind"], name="outlet_once"),)

    def __str__(self) -> str:
        return self.url


class MqttTopic(models.Model):
    """A topic of the MQTT broker whose messages are updates of data objects."""

    class CommandForm(models.TextChoices):
        AUTOMATIC = "", "As the readings are"
        TEXT = "text", "Text as it is"
        JSON = "json", "JSON"

    topic = models.CharField(
        "topic filter",
        max_length=255,
        unique=True,
        help_text="Such as sensors/+/temperature.",
    )
    object = models.CharField(
        "data object",
        max_length=500,
        help_text="Its address, such as context://example.org/sensor-{1}, where {1} stands for "
        "what the first wildcard has met. Blanks, umlauts and the like are encoded in it: living "
        "room becomes living%20room, Küche becomes K%C3%BCche.",
    )
    attribute = models.CharField(max_length=255, help_text="The attribute that a message updates.")
    path = models.CharField(
        "path to the value",
        max_length=255,
        blank=True,
        help_text="Where the value is in a JSON payload, such as data.celsius. Empty: all of it.",
    )
    schema = models.CharField(
        max_length=500, blank=True, help_text="URL of the schema that observers are told."
    )
    command_topic = models.CharField(
        max_length=255,
        blank=True,
        help_text="Where the value of an update to the object is published, such as "
        "sensors/{1}/set. Empty: it takes no commands.",
    )
    command_form = models.CharField(
        max_length=4,
        blank=True,
        default=CommandForm.AUTOMATIC,
        db_default=CommandForm.AUTOMATIC,
        choices=CommandForm.choices,
        help_text='How a text is published: off as it is, or "off" with the quotes of JSON. As the '
        "readings are: JSON if there is a path to the value, or the object's last reading was a "
        "JSON object, list or text.",
    )
    is_enabled = models.BooleanField("enabled", default=True)

    class Meta:
        ordering = ("topic",)
        verbose_name = "sensor topic"

    def __str__(self) -> str:
        return self.topic
