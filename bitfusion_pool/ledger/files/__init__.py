"""The files of a pool's folder besides the ledger: locks, wake-ups, what to say where they cannot be used."""
