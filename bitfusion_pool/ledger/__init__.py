"""Who holds which GPUs and who waits for them: leases, queue, lease locks and wake-ups, kept in SQLite."""
