"""What an admin says of GPU pods: the sizes that there are and how a pod asks for them, and all else."""
