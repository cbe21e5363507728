"""The settings of the kernel, from kernelspec options, Jupyter's config files and the environment."""
