"""`bitfusion run` on GPUs of the cluster itself: its program runs in a pod that is made for it.

Standard library only, and of this project `bitfusion_client`: it runs in any notebook's image, and starts
with every kernel.
"""
