"""The `bitfusion` command: found, called by a list of words, and what it prints understood."""
