"""Process 1 of the pod: lets one client in, runs its program, and ends with it."""
