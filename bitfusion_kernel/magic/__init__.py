"""The `%bitfusion` commands: their grammar and their answers."""
