"""What a pod gets, in Kubernetes: one program a folder, each of which reads and writes its own objects."""
