"""The queue of requests: its order, places in it, and who is granted next."""
