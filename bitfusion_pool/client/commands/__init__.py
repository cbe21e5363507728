"""The subcommands of `bitfusion` that take, reserve, release and list GPUs."""
