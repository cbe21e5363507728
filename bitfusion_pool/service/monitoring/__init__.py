"""The service's metrics: counters, who holds what over time, a census of the ledger."""
