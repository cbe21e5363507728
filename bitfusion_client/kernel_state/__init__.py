"""What a kernel tells of itself: its states, the file that has them, and how another process asks."""
