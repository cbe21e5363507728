"""The `%bitfusion` commands: recognising them, their help, and their answers."""
