"""Keeps PyTorch, TensorFlow and JAX to their share of a real GPU's memory, in each Python under a lease.

The folder of this file is on the PYTHONPATH of such programs. Python imports it at its start; it does nothing
until torch, tensorflow or jax is imported, and then tells them what they may have, without using the GPU. It
is cooperative: a program that wants more can undo it.

Written for any Python 3, and without the packages of this project, which the program need not have.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import os
import sys

VARIABLE = "BITFUSION_POOL_MEMORY_LIMITS"
AMOUNT = "MiB"
JAX_VARIABLES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")  # as in `limits`
_HERE = os.path.dirname(os.path.abspath(__file__))


def _fractions():
    """Of each GPU in the order in which the program sees them, from what `limits` has written."""
    parts = [part for part in os.environ.get(VARIABLE, "").split(",") if part]
    if not any(part.endswith(AMOUNT) for part in parts):
        return [float(part) for part in parts]
    total = _largest_mib()
    return [min(1.0, int(part[: -len(AMOUNT)]) / total) for part in parts]


def _largest_mib():
    """MiB of the largest GPU here; NVML, a part of the driver, tells it and uses none."""
    import ctypes

    nvml = ctypes.CDLL("libnvidia-ml.so.1")

    def ask(function, *arguments):
        code = getattr(nvml, function)(*arguments)
        if code:
            raise RuntimeError(f"{function}: error {code}")

    ask("nvmlInit_v2")
    try:
        count, totals = ctypes.c_uint(), []
        ask("nvmlDeviceGetCount_v2", ctypes.byref(count))
        for number in range(count.value):
            device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()  # total, free, used
            ask("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(device))
            ask("nvmlDeviceGetMemoryInfo", device, memory)
            totals.append(memory[0] // 2**20)
    finally:
        ask("nvmlShutdown")
    if not totals:
        raise RuntimeError("no GPU is here")
    return max(totals)


def _limit_torch(torch):
    def limit():
        try:
            # fewer where the program has hidden some of its GPUs itself
            for number, fraction in enumerate(_fractions()[: torch.cuda.device_count()]):
                torch.cuda.set_per_process_memory_fraction(fraction, number)
        except Exception as error:
            _tell("PyTorch", error)

    # when CUDA is first used: at the import it would delay programs that never do, and break those that fork
    torch.cuda._lazy_call(limit)


def _limit_tensorflow(tensorflow):
    import functools
    from importlib import import_module

    context = import_module("tensorflow.python.eager.context")

    # the options of the eager runtime, which is made when first used; set_memory_growth goes on working
    config = tensorflow.compat.v1.ConfigProto()
    config.gpu_options.per_process_gpu_memory_fraction = min(_fractions())
    runtime = context.context()
    if not hasattr(runtime, "_config") or runtime._initialized:
        raise RuntimeError(f"TensorFlow {tensorflow.__version__} keeps its options elsewhere")
    runtime._config = config

    def giving_way(configure):
        @functools.wraps(configure)
        def configure_instead(*args, **kwargs):
            # who divides the GPU by hand decides: TensorFlow refuses both together
            config.gpu_options.ClearField("per_process_gpu_memory_fraction")
            return configure(*args, **kwargs)

        return configure_instead

    for module, name in (
        (tensorflow.config, "set_logical_device_configuration"),
        (tensorflow.config.experimental, "set_virtual_device_configuration"),
    ):
        setattr(module, name, giving_way(getattr(module, name)))


def _limit_jax(jax):
    # read when JAX first uses a GPU; it is there already unless an amount was given
    name = JAX_VARIABLES[0] if os.environ.get(JAX_VARIABLES[0]) else JAX_VARIABLES[1]
    try:
        own = float(os.environ[name])
    except (KeyError, ValueError):
        own = 1.0
    fraction = int(min(_fractions()) * 10000) / 10000
    os.environ[name] = f"{min(own, fraction) if own > 0 else fraction:.4f}"


_LIMITS = {
    "torch": ("PyTorch", _limit_torch),
    "tensorflow": ("TensorFlow", _limit_tensorflow),
    "jax": ("JAX", _limit_jax),
}


def _tell(name, error):
    text = f"bitfusion: the share of GPU memory could not be set in {name}: {error!r}\n"
    sys.stderr.write(text)


class _Loader:
    """A loader that does something after the module is loaded, and is replaced by the real one before."""

    def __init__(self, loader, name, limit):
        self._loader = loader
        self._name = name
        self._limit = limit

    def __getattr__(self, attribute):
        return getattr(self._loader, attribute)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            self._limit(module)
        except Exception as error:
            _tell(self._name, error)


class _Finder:
    """Finds nothing by itself: gives the loaders of these modules something to do afterwards."""

    def find_spec(self, name, path=None, target=None):
        if name not in _LIMITS or path is not None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, *_LIMITS[name])
                return spec
        return None


def _run_hidden_sitecustomize():
    """Run the sitecustomize that Python would have found without this one: the user's, or the system's."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    # the path is as the user has it; the variable stays, for the Pythons that this one starts
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != _HERE]
    if os.environ.get(VARIABLE):
        sys.meta_path.insert(0, _Finder())
    _run_hidden_sitecustomize()
