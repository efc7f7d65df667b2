"""Address allocation: gives hyperties and data objects their addresses."""
