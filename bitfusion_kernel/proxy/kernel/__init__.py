"""The kernel's side of the proxy: joining the kernel, relaying its messages and output, interrupting it."""
