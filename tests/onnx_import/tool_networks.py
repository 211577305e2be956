"""Small float networks, with inputs, that ONNX Runtime's quantizer and optimizer treat differently."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx_models import AnyArray, Graph

Network = tuple[onnx.ModelProto, Mapping[str, AnyArray]]

# Opset that the quantizer doesn't convert.
_OPSET = 17
_WIDTH, _HEADS, _HIDDEN = 32, 4, 64


class Weighted(Graph):
    """Graph under construction with random weights."""

    def __init__(self, seed: int) -> None:
        super().__init__(_OPSET)
        self.rng = np.random.default_rng(seed)

    def random(self, *shape: int, spread: float = 1.0) -> str:
        return self.constant((self.rng.normal(size=shape) * spread).astype("f4"))

    def positive(self, *shape: int) -> str:
        return self.constant(self.rng.uniform(0.5, 1.5, shape).astype("f4"))

    def number(self, value: float) -> str:
        return self.constant(np.float32(value))

    def conv(self, x: str, inner: int, outer: int, size: int = 3, group: int = 1, stride: int = 1) -> str:
        spread = float(1 / np.sqrt(inner // group * size * size))
        weight = self.random(outer, inner // group, size, size, spread=spread)
        pads, strides = [size // 2] * 4, [stride] * 2
        bias = self.random(outer, spread=0.1)
        return str(self.op("Conv", x, weight, bias, pads=pads, group=group, strides=strides))

    def dense(self, x: str, inner: int, outer: int) -> str:
        product = self.op("MatMul", x, self.random(inner, outer, spread=float(1 / np.sqrt(inner))))
        return str(self.op("Add", product, self.random(outer, spread=0.1)))

    def scaled_by_channel(self, x: str, count: int) -> str:
        parts = self.positive(count), self.random(count), self.random(count), self.positive(count)
        return str(self.op("BatchNormalization", x, *parts))

    def normed(self, x: str) -> str:
        scale, bias = self.positive(_WIDTH), self.random(_WIDTH)
        return str(self.op("LayerNormalization", x, scale, bias, epsilon=1e-12))


def cnn() -> Network:
    """Build a network for images: residual block, branches with all activations, squeeze and excitation, upsampling."""
    g = Weighted(1)
    first = g.op("Relu", g.scaled_by_channel(g.conv(g.input("image", ["n", 3, 16, 16]), 3, 8), 8))
    x = g.op("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2])
    x = g.op("Relu", g.op("Add", g.conv(x, 8, 8), x))
    gated = g.conv(x, 8, 8, size=1)
    branches = [
        g.op("LeakyRelu", g.conv(x, 8, 8), alpha=0.1),
        g.op("HardSwish", g.conv(x, 8, 8, group=8)),
        g.op("Mul", gated, g.op("Sigmoid", gated)),
        g.op("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    x = g.op("Concat", *branches, axis=1)
    squeezed = g.op("Relu", g.conv(g.op("GlobalAveragePool", x), 32, 8, size=1))
    x = g.op("Mul", x, g.op("HardSigmoid", g.conv(squeezed, 8, 32, size=1), alpha=1 / 6))
    sizes = g.constant(np.array([1, 1, 2, 2], "f4"))
    how: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    x = g.op("Concat", g.op("Resize", x, "", sizes, **how), first, axis=1)
    left, right = g.op("Split", x, g.constant([24, 16]), axis=1, outputs=2)
    x = g.op("Concat", g.op("Transpose", right, perm=[0, 1, 3, 2]), left, axis=1)
    borders = g.constant([0, 0, 1, 1, 0, 0, 1, 1])
    x = g.op("Clip", g.conv(g.op("Pad", x, borders), 40, 8, stride=2), g.number(0), g.number(6))
    weight, bias = g.random(10, 8, spread=0.3), g.random(10)
    x = g.op("Gemm", g.op("Flatten", g.op("GlobalAveragePool", x)), weight, bias, transB=1)
    feeds = {"image": g.rng.normal(size=(2, 3, 16, 16)).astype("f4")}
    return g.model(g.op("Softmax", x, axis=-1)), feeds


def encoder() -> Network:
    """Build a text encoder with a mask: two attention layers as exporters write them."""
    g = Weighted(2)
    ids, mask = (g.input(name, ["batch", "steps"], np.int64) for name in ("ids", "mask"))
    shape = g.op("Shape", ids)
    batch, steps = (
        g.op("Unsqueeze", g.op("Gather", shape, g.constant(np.int64(at))), g.constant([0])) for at in (0, 1)
    )
    shown = g.op("Cast", g.op("Unsqueeze", mask, g.constant([1, 2])), to=onnx.TensorProto.FLOAT)
    hidden = g.op("Mul", g.op("Sub", g.number(1), shown), g.number(-10000))
    x = g.normed(g.op("Gather", g.random(50, _WIDTH), ids))
    for _ in range(2):
        heads = g.op("Concat", batch, steps, g.constant([_HEADS]), g.constant([_WIDTH // _HEADS]), axis=0)
        q, k, v = (
            g.op("Transpose", g.op("Reshape", g.dense(x, _WIDTH, _WIDTH), heads), perm=order)
            for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = g.op("Div", g.op("MatMul", q, k), g.number(float(np.sqrt(_WIDTH // _HEADS))))
        seen = g.op("MatMul", g.op("Softmax", g.op("Add", scores, hidden), axis=-1), v)
        merged = g.op("Concat", batch, steps, g.constant([_WIDTH]), axis=0)
        context = g.op("Reshape", g.op("Transpose", seen, perm=[0, 2, 1, 3]), merged)
        x = g.normed(g.op("Add", g.dense(context, _WIDTH, _WIDTH), x))
        y = g.dense(x, _WIDTH, _HIDDEN)
        bent = g.op("Add", g.op("Erf", g.op("Div", y, g.number(float(np.sqrt(2))))), g.number(1))
        y = g.op("Mul", g.op("Mul", y, bent), g.number(0.5))
        x = g.normed(g.op("Add", g.dense(y, _HIDDEN, _WIDTH), x))
    pooled = g.op("Gather", x, g.constant(np.int64(0)), axis=1)
    pooled = g.op("Tanh", g.op("Gemm", pooled, g.random(_WIDTH, _WIDTH, spread=0.2), g.random(_WIDTH)))
    lengths = np.array([[6], [4]])
    return g.model(x, pooled), {"ids": g.rng.integers(0, 50, (2, 6)), "mask": (np.arange(6) < lengths).astype("i8")}


def decoder() -> Network:
    """Build a network for vectors with root mean square norms, and the GELUs of GPT-2 and CLIP as separate nodes."""
    g = Weighted(3)
    x = g.input("x", ["batch", "steps", _WIDTH])

    def normed(x: str) -> str:
        mean = g.op("ReduceMean", g.op("Pow", x, g.number(2)), axes=[-1])
        root = g.op("Sqrt", g.op("Add", mean, g.number(1e-6)))
        return str(g.op("Mul", g.op("Div", x, root), g.positive(_WIDTH)))

    y = g.dense(normed(x), _WIDTH, _HIDDEN)
    cube = g.op("Mul", g.op("Pow", y, g.number(3)), g.number(0.044715))
    bent = g.op("Tanh", g.op("Mul", g.op("Add", y, cube), g.number(float(np.sqrt(2 / np.pi)))))
    y = g.op("Mul", g.op("Mul", y, g.number(0.5)), g.op("Add", bent, g.number(1)))
    x = g.op("Add", x, g.dense(y, _HIDDEN, _WIDTH))
    y = g.dense(x, _WIDTH, _WIDTH)
    x = g.op("Add", x, g.op("Mul", y, g.op("Sigmoid", g.op("Mul", y, g.number(1.702)))))
    scores = g.op("Mul", g.op("MatMul", x, g.op("Transpose", x, perm=[0, 2, 1])), g.number(0.3))
    return g.model(normed(x), scores), {"x": g.rng.normal(size=(2, 5, _WIDTH)).astype("f4")}


def lstm() -> Network:
    """Build a bidirectional LSTM for series of any number and length."""
    g = Weighted(4)
    x = g.input("x", ["steps", "batch", 6])
    parts = g.random(2, 32, 6, spread=0.5), g.random(2, 32, 8, spread=0.5), g.random(2, 64, spread=0.5)
    y, last, _ = g.op("LSTM", x, *parts, outputs=3, hidden_size=8, direction="bidirectional")
    y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.constant([0, 0, 16]))
    return g.model(g.op("MatMul", y, g.random(16, 5, spread=0.25)), last), {
        "x": g.rng.normal(size=(5, 2, 6)).astype("f4")
    }


NETWORKS: dict[str, Callable[[], Network]] = {"cnn": cnn, "decoder": decoder, "encoder": encoder, "lstm": lstm}
