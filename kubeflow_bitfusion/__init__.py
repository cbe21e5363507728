"""The command `kubeflow-bitfusion`: a thin layer over the forms and over what looks at a cluster."""
