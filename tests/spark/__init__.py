"""Reports over the traffic record.

- what is counted, over Spark: test_reports (against independent.py, which computes the same in
  plain Python), test_jobs, test_forecast, test_damage
- files, without Spark: test_ledger, test_tables, test_two_runs (killed at each step),
  test_retention
- runs and pages, without Spark: test_runs, test_pages, test_command, test_periods, test_java
- long: test_killed_at_each_step, test_ended, test_cluster, test_object_store, test_years,
  test_in_production, test_in_a_browser
"""
