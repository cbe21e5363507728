"""Kernelspecs on disk: installing, listing, removing and checking them, for the command `bitfusion-kernel`.

`kernelspec`: the content of kernel.json · `spec_store`: the folders · `kernel_info`: asks the wrapped
kernel who it is · `doctor`: the report, made of findings (`finding`) by `check_kernelspec`, `check_client`
and `check_environment`
"""
