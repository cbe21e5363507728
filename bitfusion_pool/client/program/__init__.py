"""The program under a lease: its start, its environment, its signals, and its `nvidia-smi`."""
