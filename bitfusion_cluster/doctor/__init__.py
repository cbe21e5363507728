"""What `kubeflow-bitfusion doctor` checks in a cluster: pure checks over one object that reads it."""
