"""Policies: language, engine, enforcement, authoring, pages.

- cases.jsonl (test_cases), faults.jsonl and readings.jsonl (test_readings): what documents decide,
  what is told of those that cannot be read; a new case is a line there first
- test_truth_tables: every combination of siblings; test_compiled_equals_plain: compiled conditions
  decide as the plain evaluator of plain.py (property); test_condition_edges: first and last values
- test_index, test_scan_groups, test_written_out, test_depth: what is fast is still right and
  bounded
- test_pep, test_service: enforcement and what it costs; test_decision_log, test_replay
- test_pap, test_standing, test_console, test_typed_pages: drafts, publication, pages (with a
  database)

That a publication reaches a running node is in tests/e2e/test_policies.py.
"""
