"""What a pod with an injected client looks like, for who makes it and for who runs in it."""
