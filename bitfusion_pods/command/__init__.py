"""The `bitfusion` command whose GPUs are the cluster's: a pod for each program."""
