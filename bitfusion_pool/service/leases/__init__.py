"""What the service does with the ledger for its clients: grants, limits, and whose leases still live."""
