"""Attacks on a running node: what it answered, what it cost, and that others were served.

- test_weight: half-open requests, bombs, fragments, odd headers, requests within requests
- test_memory, test_rows, test_amplification: what one source may take of memory, rows and time
- test_resets: connections that are reset in the middle of a fan-out
- test_pages: forms of other sites, guessed passwords, markup in what messages say

Only what needs a whole node under load is here. The limits at their edge are in tests/conformance,
the rules of addresses and names in tests/bus and tests/ownership, garbage in tests/fuzz.
"""
