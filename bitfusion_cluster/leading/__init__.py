"""Leader election by a Lease, and the life of a program that works while it leads."""
