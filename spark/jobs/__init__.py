"""Spark jobs: DataFrame in, DataFrame out. Nothing of Django and nothing of the node in here."""
