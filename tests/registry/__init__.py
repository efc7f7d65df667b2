"""The domain registry and the global one: entries, their life, searches, both HTTP APIs.

Case numbers are those of docs/reference/registry.md.
- test_entries, test_guids: rules (pure); test_model: any history against a model
- test_store, test_searches, test_lifecycle: with a database
- test_field_hyperties, test_field_objects, test_global: the field's API; test_v1, test_conditions,
  test_contract: the newer one; test_admin: pages

By message: tests/connectors. Who may change what: tests/ownership.
"""
