"""Spark jobs: DataFrame in, DataFrame out. No Django and no node in here."""
