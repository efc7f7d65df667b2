"""The domain registry: where hyperties and data objects are entered and found."""
