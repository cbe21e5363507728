"""A long-running program as a command: settings, files, ports, and one line for whatever goes wrong."""
