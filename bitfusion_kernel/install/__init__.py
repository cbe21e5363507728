"""Kernelspecs on disk: written by `bitfusion-kernel install`, checked by `bitfusion-kernel doctor`."""
