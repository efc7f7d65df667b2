"""How the console writes dates, by language."""
