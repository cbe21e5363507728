"""The administrator's command `bitfusion-pool`: status, init, simulate, reap."""
