"""What every test may ask for."""

pytest_plugins = ["tests.services", "tests.issuer", "tests.retries", "tests.groups", "pytester"]
