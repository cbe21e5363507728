"""The `bitfusion` command: what users, kernels and scripts call to take GPUs and to run programs with them.

- ``cli``: the subcommands; ``signals``, ``log_output``: what all of them need
- ``run``: `run`; ``reservations``: `request_gpus`, `client`, `release_gpus`
- ``first_contact``, ``holder``, ``acquisition``, ``program``: the steps of these, in their order; ``lease``
- ``pool``: what all of them need of a pool; ``pool_choice``: which one is used
- ``own_pool``: the user's own; ``service_pool``, ``service_connection``, ``service_snapshot``: a service's;
  ``connection``, ``greeting``, ``service_errors``: what all services have in common
- ``network_pool``, ``network_service``, ``network_connection``: a service on another machine
- ``keeper``, ``keeper_process``, ``life_pipe``, ``reach``: how a lease over the network lives
- ``allocation_file``, ``requested_gpus``, ``program_environment``: what they write
- ``reports``: `list_gpus`, `smi`
- ``health``, ``machine_checks``, ``network_checks``, ``health_report``: `health`
- ``nvidia_smi``: the `nvidia-smi` of programs whose GPUs are simulated, in `bitfusion_pool/simulated_bin`
"""
