"""Notebooks that ask for Bitfusion GPUs, in Kubernetes: annotations are written down, carried, and healed.

Runs beside an unmodified Kubeflow. A running notebook is never restarted.
"""
