"""The name under which IPython loads the `%bitfusion` extension; installed kernels and profiles use it."""

from __future__ import annotations

from bitfusion_kernel.magic.ipython_extension import load_ipython_extension

__all__ = ["load_ipython_extension"]
