"""Notebooks that ask for Bitfusion GPUs, in Kubernetes: admission, certificates, and the reconciler.

Runs beside an unmodified Kubeflow. What a Notebook asks for is read by `bitfusion_client`; here it is written
down as annotations (``admission.notebook``), carried to the StatefulSet (``admission.statefulset``), and
healed where nobody was there to write it (``reconcile``). A running notebook is never restarted.
"""
