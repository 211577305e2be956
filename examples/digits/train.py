"""Training of the demo's digit classifier in plain numpy.

Run it from anywhere, with nothing but numpy installed::

    python examples/digits/train.py                     # writes weights.npz beside this file
    python examples/digits/train.py --epochs 20 --seed 7 --output /tmp/weights.npz

The network, in the NHWC layout of the NNRt operators::

    image [n, 8, 8, 1]
      conv 3x3 SAME, 1 -> 16, ReLU      conv1_weight [16, 3, 3, 1]   conv1_bias [16]
      max pool 2x2, stride 2            -> [n, 4, 4, 16]
      conv 3x3 SAME, 16 -> 32, ReLU     conv2_weight [32, 3, 3, 16]  conv2_bias [32]
      max pool 2x2, stride 2            -> [n, 2, 2, 32]
      flatten, row-major over [H, W, C] -> [n, 128]
      fully connected, 128 -> 10        dense_weight [10, 128]       dense_bias [10]
      softmax

It learns from the training part only. The held-out part is used once, after the last epoch. The same seed gives the
same weights, up to floating point.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from dataset import Images, Labels, load

Array = npt.NDArray[np.float32]
Params = dict[str, Array]

CLASSES = 10
BATCH_SIZE = 64
LEARNING_RATE = 6e-3
WEIGHT_DECAY = 0.1
MAX_SHIFT = 0.7  # pixels
MAX_DISTORTION = 0.2  # maximum change of each coefficient of the sampling grid's matrix
ADAM_BETA1, ADAM_BETA2, ADAM_EPSILON = 0.9, 0.999, 1e-8
DEFAULT_OUTPUT = Path(__file__).resolve().parent / "weights.npz"


# --- The layers, each with its gradient ---------------------------------------------------------


def patches(x: Array) -> Array:
    """Return the 3x3 neighbourhood of every pixel (zero padded): [n, h, w, c] -> [n, h, w, 9 * c]."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    columns: Array = windows.transpose(0, 1, 2, 4, 5, 3).reshape(*x.shape[:3], -1)
    return columns


def conv(x: Array, weight: Array) -> Array:
    """Compute a 3x3 SAME convolution with stride 1 and a weight of [outChannel, 3, 3, inChannel]."""
    y: Array = patches(x) @ weight.reshape(len(weight), -1).T
    return y


def conv_gradients(x: Array, weight: Array, dy: Array) -> tuple[Array, Array, Array]:
    """Return the gradients of a convolution with respect to its input, its weight and its bias."""
    channels = len(weight)
    dy_rows = dy.reshape(-1, channels)
    d_weight = (dy_rows.T @ patches(x).reshape(len(dy_rows), -1)).reshape(weight.shape)
    dx = conv(dy, weight[:, ::-1, ::-1, :].transpose(3, 1, 2, 0))
    return dx, d_weight, dy_rows.sum(axis=0)


def pool_windows(x: Array) -> Array:
    """Return a view of x in 2x2 windows: [n, h, w, c] -> [n, h / 2, 2, w / 2, 2, c]."""
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c)


def max_pool(x: Array) -> Array:
    """Compute 2x2 max pooling with stride 2."""
    pooled: Array = pool_windows(x).max(axis=(2, 4))
    return pooled


def max_pool_gradient(x: Array, pooled: Array, dy: Array) -> Array:
    """Pass each gradient to the largest pixel of its window, shared evenly between equal pixels."""
    winners = pool_windows(x) == pooled[:, :, None, :, None, :]
    shares = winners / winners.sum(axis=(2, 4), keepdims=True, dtype=np.float32)
    dx: Array = (shares * dy[:, :, None, :, None, :]).reshape(x.shape)
    return dx


def softmax(logits: Array) -> Array:
    """Return class probabilities along the last axis."""
    exponentials: Array = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return probabilities


# --- The network --------------------------------------------------------------------------------


def initial_params(rng: np.random.Generator) -> Params:
    """Return He-normal weights and zero biases."""
    shapes = {"conv1": (16, 3, 3, 1), "conv2": (32, 3, 3, 16), "dense": (CLASSES, 128)}
    params: Params = {}
    for name, shape in shapes.items():
        scale = math.sqrt(2 / math.prod(shape[1:]))
        params[f"{name}_weight"] = (scale * rng.standard_normal(shape)).astype(np.float32)
        params[f"{name}_bias"] = np.zeros(shape[0], np.float32)
    return params


def forward(params: Params, x: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Return the activations after each layer; the last ones are the class probabilities."""
    active1 = np.maximum(conv(x, params["conv1_weight"]) + params["conv1_bias"], 0)
    pooled1 = max_pool(active1)
    active2 = np.maximum(conv(pooled1, params["conv2_weight"]) + params["conv2_bias"], 0)
    pooled2 = max_pool(active2)
    logits = pooled2.reshape(len(x), -1) @ params["dense_weight"].T + params["dense_bias"]
    return active1, pooled1, active2, pooled2, softmax(logits)


def gradients(params: Params, x: Array, labels: Labels) -> tuple[float, Params]:
    """Return the mean cross-entropy over a batch, and its gradient for every parameter."""
    active1, pooled1, active2, pooled2, probabilities = forward(params, x)
    loss = -np.log(probabilities[np.arange(len(x)), labels] + 1e-12).mean()

    d_logits: Array = (probabilities - np.eye(CLASSES, dtype=np.float32)[labels]) / np.float32(len(x))
    d_pooled2: Array = (d_logits @ params["dense_weight"]).reshape(pooled2.shape)
    d_conv2 = max_pool_gradient(active2, pooled2, d_pooled2) * (active2 > 0)
    d_pooled1, d_weight2, d_bias2 = conv_gradients(pooled1, params["conv2_weight"], d_conv2)
    d_conv1 = max_pool_gradient(active1, pooled1, d_pooled1) * (active1 > 0)
    _, d_weight1, d_bias1 = conv_gradients(x, params["conv1_weight"], d_conv1)
    return float(loss), {
        "conv1_weight": d_weight1,
        "conv1_bias": d_bias1,
        "conv2_weight": d_weight2,
        "conv2_bias": d_bias2,
        "dense_weight": d_logits.T @ pooled2.reshape(len(x), -1),
        "dense_bias": d_logits.sum(axis=0),
    }


def accuracy(params: Params, images: Images, labels: Labels) -> float:
    """Return the fraction of images whose most probable class is their label."""
    predicted = forward(params, images)[-1].argmax(axis=1)
    return float((predicted == labels).mean())


# --- Training -----------------------------------------------------------------------------------


class Adam:
    """Adam optimizer with decoupled weight decay (AdamW); biases do not decay."""

    def __init__(self, params: Params) -> None:
        """Start with zero moments. ``params`` are updated in place."""
        self.params = params
        self.steps = 0
        self.mean = {name: np.zeros_like(value) for name, value in params.items()}
        self.square = {name: np.zeros_like(value) for name, value in params.items()}

    def step(self, grads: Params, rate: float) -> None:
        """Move every parameter, in place, against its gradient."""
        self.steps += 1
        correction = math.sqrt(1 - ADAM_BETA2**self.steps) / (1 - ADAM_BETA1**self.steps)
        for name, grad in grads.items():
            mean, square, value = self.mean[name], self.square[name], self.params[name]
            mean += (1 - ADAM_BETA1) * (grad - mean)
            square += (1 - ADAM_BETA2) * (grad * grad - square)
            if name.endswith("_weight"):
                value *= 1 - rate * WEIGHT_DECAY
            value -= rate * correction * mean / (np.sqrt(square) + ADAM_EPSILON)


def distort(images: Images, rng: np.random.Generator) -> Images:
    """Shift, rotate, shear and zoom each image a little, at random (bilinear, zero outside)."""
    n, height, width, _ = images.shape
    bend = rng.uniform(-MAX_DISTORTION, MAX_DISTORTION, (n, 2, 2)) + np.eye(2)
    shift = rng.uniform(-MAX_SHIFT, MAX_SHIFT, (n, 2, 1))
    centre = np.array([[height - 1], [width - 1]]) / 2
    grid = np.indices((height, width)).reshape(2, -1)
    source = bend @ (grid - centre) + centre + shift  # [n, 2, pixels]: where each pixel is read

    padded = np.pad(images[..., 0], ((0, 0), (1, 1), (1, 1)))
    source = np.clip(source + 1, 0, np.array([[height], [width]]) + 0.999)
    row, column = source.astype(np.intp).transpose(1, 0, 2)
    down, right = (source % 1).transpose(1, 0, 2)
    image = np.arange(n)[:, np.newaxis]
    upper = padded[image, row, column] * (1 - right) + padded[image, row, column + 1] * right
    lower = padded[image, row + 1, column] * (1 - right) + padded[image, row + 1, column + 1] * right
    distorted: Images = (upper * (1 - down) + lower * down).astype(np.float32).reshape(images.shape)
    return distorted


def batches(images: Images, labels: Labels, rng: np.random.Generator) -> Iterator[tuple[Images, Labels]]:
    """Yield one epoch of newly distorted images, in random order."""
    order = rng.permutation(len(images))
    for start in range(0, len(order), BATCH_SIZE):
        chosen = order[start : start + BATCH_SIZE]
        yield distort(images[chosen], rng), labels[chosen]


def train(images: Images, labels: Labels, epochs: int, seed: int) -> Params:
    """Train a new network, with a learning rate that falls to zero along a cosine."""
    rng = np.random.default_rng(seed)
    params = initial_params(rng)
    adam = Adam(params)
    for epoch in range(epochs):
        rate = LEARNING_RATE * (1 + math.cos(math.pi * epoch / epochs)) / 2
        losses = []
        for batch_images, batch_labels in batches(images, labels, rng):
            loss, grads = gradients(params, batch_images, batch_labels)
            adam.step(grads, rate)
            losses.append(loss)
        if epoch % 20 == 19 or epoch == epochs - 1:
            print(f"epoch {epoch + 1:4d}/{epochs}  training loss {np.mean(losses):.4f}", flush=True)
    return params


def main() -> None:
    """Train, report the held-out accuracy, and save the weights."""
    parser = argparse.ArgumentParser(description="Train the digit classifier of the nnrt demo in numpy.")
    parser.add_argument("--epochs", type=int, default=300, help="passes over the training part (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (%(default)s)")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="the .npz file to write")
    arguments = parser.parse_args()

    digits = load()
    started = time.perf_counter()
    params = train(digits.train_images, digits.train_labels, arguments.epochs, arguments.seed)
    print(f"trained in {time.perf_counter() - started:.1f} s")
    print(f"training accuracy  {accuracy(params, digits.train_images, digits.train_labels):.2%}")
    print(f"held-out accuracy  {accuracy(params, digits.test_images, digits.test_labels):.2%}")
    with arguments.output.open("wb") as file:
        np.savez(file, allow_pickle=False, **params)
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
