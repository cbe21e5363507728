"""What every program of this project in a Kubernetes cluster is made of."""
