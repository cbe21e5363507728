"""The command `bitfusion-pool`: status, init, simulate, reap.

- ``cli``: arguments, output, exit status
- ``setup``: `init` and `simulate`; ``reap``: `reap`
- ``status``: `status` as tables; ``status_json``: `status --json`
"""
