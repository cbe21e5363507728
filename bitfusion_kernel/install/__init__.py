"""Kernelspecs on disk: installing, listing, removing and checking them, for `bitfusion-kernel`."""
