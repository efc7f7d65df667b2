"""What every test may ask for."""

pytest_plugins = [
    *("tests.services", "tests.object_store", "tests.issuer"),
    *("tests.retries", "tests.groups", "pytester"),
]
