"""What all packages share: requests for GPUs, the `bitfusion` command's words, names in Kubernetes, errors.

Standard library only; imports none of the other packages. Importing this package imports none of its modules,
so that a starting kernel pays only for those it names.

The request
    request, request_rules, command_line, durations, quantities, decimals
The `bitfusion` command
    find_client, client_lines, client_output, client_reports, client_failure, exit_status
Kubernetes
    kubernetes_names, kubernetes_sizes, kubernetes_annotations, kubernetes_request, raw_objects,
    notebook_request, notebook_changes, client_images, refusals, pod_contract,
    pod_units
Everywhere
    errors, one_line, fast_imports, structured_logs, version
"""
