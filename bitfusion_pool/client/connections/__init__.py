"""Connections of a command to a service: a unix socket or TLS, greetings, and errors in words."""
