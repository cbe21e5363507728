"""What runs inside a pod that asks for GPUs: what puts the client there, and what starts it."""
