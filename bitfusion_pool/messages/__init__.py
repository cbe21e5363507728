"""What a client of a pool and its service say to each other: typed messages, one JSON object a line. Pure."""
