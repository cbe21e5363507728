"""The `bitfusion` command: what users, kernels and scripts call to take GPUs and run programs with them."""
