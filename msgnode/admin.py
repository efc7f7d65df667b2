"""Where Django looks for admin classes: those of the console."""

from django.contrib import admin

from msgnode.console import (  # noqa: F401
    accounts,
    alarms,
    audit_log,
    bans,
    clients,
    connectors,
    holdings,
    issuers,
    keys,
    legacy_networks,
    mqtt_topics,
    peer_messages,
    peers,
    pools,
    push_endpoints,
    qos,
    schedule,
    sessions,
    workers,
)

admin.site.index_title = "Overview"
admin.site.login_template = "access/login.html"  # the theme's needs what its policy forbids
