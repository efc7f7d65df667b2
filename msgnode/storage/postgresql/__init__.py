"""Django's PostgreSQL back-end with a limit of each wait (base.py), as ENGINE of DATABASES."""
