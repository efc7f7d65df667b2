"""What a worker counts, samples, traces and alarms about.

Units; traces are tested over a pipeline of fakes (test_tracer what is shown, test_traced_steps
that a traced message fares as another), the steps themselves in tests/bus/test_trace.py. The page
of metrics is compared with the code in tests/ops, spans of two workers are in
tests/console/test_traces.py.
"""
