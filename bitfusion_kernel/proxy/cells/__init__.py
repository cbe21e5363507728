"""Cells in their order: queued, waiting, run by the kernel or (`%bitfusion`) by the proxy, or aborted."""
