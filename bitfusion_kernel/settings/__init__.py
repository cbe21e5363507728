"""The settings of the kernel, from the kernelspec, Jupyter's config files and the environment."""
