"""Messages, addresses, rates, errors: the pure vocabulary, mostly by properties (hypothesis).

Only test_row_statements and test_database_errors ask a database.
"""
