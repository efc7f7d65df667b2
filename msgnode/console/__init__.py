"""The operator's console: lists, live changes, dashboards. Above the node; no room imports it."""
