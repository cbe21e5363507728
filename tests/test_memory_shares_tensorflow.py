"""The real TensorFlow in a program with a share of a card; it is in the environment of `make test` only."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.client.gpu_memory.test_hook import python


@pytest.mark.tensorflow
@pytest.mark.long
def test_tensorflow_is_told_and_gives_way_to_who_divides_the_gpu_by_hand(tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("tensorflow is not installed: the demo extra is missing")
        pytest.skip("needs the demo extra")
    code = """\
import tensorflow as tf
from tensorflow.python.eager import context
def fraction():
    return context.context().config.gpu_options.per_process_gpu_memory_fraction
print(context.context()._initialized, fraction(), float(tf.reduce_sum(tf.ones((3, 3)))))
"""
    assert python(code, tmp_path)[0] == "False 0.25 9.0\n"
    divided = """
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
print(fraction(), len(tf.config.list_logical_devices("CPU")))
"""
    code = "\n".join(code.splitlines()[:-1]) + divided
    assert python(code, tmp_path)[0] == "0.0 2\n"
