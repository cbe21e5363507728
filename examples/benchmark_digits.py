"""A benchmark in the manner of tf_cnn_benchmarks: how many digits a second a network learns from.

bitfusion run -n 1 -p 0.5 -- python3 benchmark_digits.py --batch_size=64 --num_batches=100
"""

from __future__ import annotations

import argparse
import json
import os
import time

# TensorFlow's start-up notes are not the benchmark's.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits


def network() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )


def device_text() -> str:
    """What the pool gave this program; the product's own client shows it as an ordinary CUDA device."""
    given = json.loads(os.environ.get("BITFUSION_POOL_DEVICES", "[]"))
    if not given:
        return ", ".join(device.name for device in tf.config.list_physical_devices("GPU")) or "CPU"
    return ", ".join(f"{gpu['name']} ({gpu['memory_mib']} of {gpu['total_mib']} MiB)" for gpu in given)


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn digits as fast as possible.")
    parser.add_argument("--batch_size", type=int, default=64, help="images a step (64)")
    parser.add_argument("--num_batches", type=int, default=100, help="steps (100)")
    options = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(2000, seed=1).repeat()
    batches = iter(data.batch(options.batch_size))
    model = network()
    optimizer = keras.optimizers.Adam(2e-3)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    print(f"TensorFlow:  {tf.__version__}")
    print(f"Device:      {device_text()}")
    print(f"Batch size:  {options.batch_size}")
    for _ in range(5):
        step(*next(batches))  # compiling and warming up is not what is measured
    print("Step\tImg/sec\ttotal_loss", flush=True)
    started = last = time.perf_counter()
    part = max(1, options.num_batches // 5)
    for number in range(1, options.num_batches + 1):
        loss = step(*next(batches))
        if number % part == 0:
            value, now = float(loss), time.perf_counter()
            print(f"{number}\t{part * options.batch_size / (now - last):.1f}\t{value:.3f}", flush=True)
            last = now
    total = options.num_batches * options.batch_size / (time.perf_counter() - started)
    print("-" * 40)
    print(f"total images/sec: {total:.2f}")
    print("-" * 40)


if __name__ == "__main__":
    main()
