"""Who connects to the service: sockets, TLS, users and tokens, lines, turns, and a bound on each."""
