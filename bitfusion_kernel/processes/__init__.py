"""The processes between proxy and kernel: supervisor, wrapper, launcher, and the messages between them."""
