"""The command `bitfusion-pool`: status, init, simulate, reap, token, certificate, serve.

- ``cli``: arguments, output, exit status
- ``setup``: `init` and `simulate`; ``nvidia_setup``: `init --nvidia`; ``reap``: `reap`
- ``token_command``: `token`; ``certificate_command``: `certificate`; ``service_folder``: where both are kept
- ``serve``: `serve`, its options and its start
- ``status``: `status` as tables; ``status_json``: `status --json`
"""
