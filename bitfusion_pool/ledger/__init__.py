"""Who holds which GPUs and who waits: leases, the queue, lease locks and wake-ups, kept in SQLite."""
