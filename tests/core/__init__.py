"""Messages, addresses, rates, errors: the pure vocabulary, mostly by properties (hypothesis).

Only test_row_statements, test_database_errors and test_database_limit ask a database.
"""
