"""Notebooks as several programs need them: looked up as they are now, as small records, with image rules."""
