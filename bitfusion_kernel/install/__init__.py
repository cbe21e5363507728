"""Kernelspecs on disk: installing, listing, removing and checking them, for the command `bitfusion-kernel`."""
