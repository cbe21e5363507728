"""The processes between Jupyter and the kernel: supervisor, launcher, and what they say to each other."""
