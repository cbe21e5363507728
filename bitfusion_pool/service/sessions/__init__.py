"""What one client of the service says, in which order it may say it, and what it is answered and told."""
