"""What all packages share: requests for GPUs, the `bitfusion` command's words, names in Kubernetes, errors.

Standard library only; imports none of the other packages. Importing this package imports none of its modules,
so that a starting kernel pays only for those it names.
"""
