"""Decoders of two layers, as exporters write them, and the steps in which they generate text."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx_models import AnyArray
from ort_tools import MICROSOFT
from tool_networks import Weighted

LAYERS = 2
_TOKENS, _HIDDEN, _HEADS, _GROUPS, _WIDTH, _INNER = 40, 64, 4, 2, 16, 96
_PLACES, _ROOM = 24, 16
_BATCH, _PROMPT = 2, 5

Feeds = dict[str, AnyArray]


class Decoder(Weighted):
    """Decoder under construction."""

    def __init__(self, seed: int, opset: int) -> None:
        super().__init__(seed)
        self.opset = opset
        turns = np.arange(_PLACES)[:, None] / 10 ** np.arange(0, 2, 4 / _WIDTH)
        self.cos, self.sin = (self.constant(f(turns).astype("f4")) for f in (np.cos, np.sin))
        self.caches: list[str] = []

    def past(self, layer: int, steps: str | int) -> list[str]:
        """Add the inputs for keys and values of a layer."""
        return [self.input(f"past.{layer}.{kind}", ["batch", _GROUPS, steps, _WIDTH]) for kind in ("key", "value")]

    def linear(self, x: str, inner: int, outer: int) -> str:
        return str(self.op("MatMul", x, self.random(inner, outer, spread=float(1 / np.sqrt(inner)))))

    def norm(self) -> str:
        return self.positive(_HIDDEN)

    def finished(self, logits: str) -> onnx.ModelProto:
        return self.model(logits, *self.caches)


class QuantizedDecoder(Decoder):
    """Decoder whose matrices have 4 bits, in blocks of 16 or 32, with and without zero points."""

    def linear(self, x: str, inner: int, outer: int) -> str:
        size = 32 if inner % 32 == 0 else 16
        blocks = inner // size
        weight = self.constant(self.rng.integers(0, 256, (outer, blocks, size // 2), "u1"))
        scales = self.constant(self.rng.uniform(0.01, 0.04, outer * blocks).astype("f4"))
        points = [self.constant(self.rng.integers(0, 256, outer * -(-blocks // 2), "u1"))] if outer == _INNER else []
        sizes: dict[str, Any] = {"K": inner, "N": outer, "bits": 4, "block_size": size}
        return str(self.op("MatMulNBits", x, weight, scales, *points, domain=MICROSOFT, **sizes))


def grouped() -> onnx.ModelProto:
    """Build a decoder of ONNX Runtime's own operators. The first layer rotates within its attention."""
    g = QuantizedDecoder(1, 21)
    ids, places = (g.input(name, ["batch", "steps"], np.int64) for name in ("ids", "places"))
    mask = g.input("mask", ["batch", "all"], np.int64)
    ends = g.op("Sub", g.op("ReduceSum", mask, g.constant([1]), keepdims=0), g.constant(1))
    ends = g.op("Cast", ends, to=onnx.TensorProto.INT32)
    total = g.op("Gather", g.op("Shape", mask), g.constant(1))
    total = g.op("Cast", total, to=onnx.TensorProto.INT32)
    x = g.op("Gather", g.random(_TOKENS, _HIDDEN), ids)
    y = g.op("SimplifiedLayerNormalization", x, g.norm(), epsilon=1e-6)

    def normed(x: str, y: str) -> Any:
        return g.op("SkipSimplifiedLayerNormalization", x, y, g.norm(), domain=MICROSOFT, outputs=4, epsilon=1e-6)

    for layer in range(LAYERS):
        q = g.linear(y, _HIDDEN, _HEADS * _WIDTH)
        k, v = (g.linear(y, _HIDDEN, _GROUPS * _WIDTH) for _ in range(2))
        past = g.past(layer, "past")
        turns = [g.cos, g.sin]
        if layer:
            q, k = (g.op("RotaryEmbedding", part, places, *turns, domain=MICROSOFT) for part in (q, k))
            turns = []
        heads: dict[str, Any] = {"num_heads": _HEADS, "kv_num_heads": _GROUPS, "do_rotary": int(layer == 0)}
        given = [q, k, v, *past, ends, total, *turns]
        y, *present = g.op("GroupQueryAttention", *given, outputs=3, domain=MICROSOFT, **heads)
        g.caches += present
        y, _, _, x = normed(x, g.linear(y, _HEADS * _WIDTH, _HIDDEN))
        gate, up = (g.linear(y, _HIDDEN, _INNER) for _ in range(2))
        y = g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), up)
        y, _, _, x = normed(x, g.linear(y, _INNER, _HIDDEN))
    return g.finished(g.linear(y, _HIDDEN, _TOKENS))


def exported() -> onnx.ModelProto:
    """Build a decoder of ONNX's own operators, with caches that grow. The second layer has its mask as an input."""
    g = Decoder(2, 23)
    ids, places = (g.input(name, ["batch", "steps"], np.int64) for name in ("ids", "places"))
    mask = g.input("seen", ["batch", 1, "steps", "all"], np.bool_)
    x = g.op("Gather", g.random(_TOKENS, _HIDDEN), ids)
    for layer in range(LAYERS):
        q, k, v = _heads(g, x, places)
        past = g.past(layer, "past")
        y, *present = g.op("Attention", q, k, v, mask if layer else "", *past, outputs=3, is_causal=int(layer == 0))
        g.caches += present
        x = _rest(g, x, g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.constant([0, 0, -1])))
    return g.finished(g.linear(g.op("RMSNormalization", x, g.norm()), _HIDDEN, _TOKENS))


def buffered() -> onnx.ModelProto:
    """Build a decoder of ONNX's own operators, with caches that are written into, for rows of any lengths."""
    g = Decoder(3, 24)
    ids, places = (g.input(name, ["batch", "steps"], np.int64) for name in ("ids", "places"))
    written, lengths = (g.input(name, ["batch"], np.int64) for name in ("written", "lengths"))
    x = g.op("Gather", g.random(_TOKENS, _HIDDEN), ids)
    for layer in range(LAYERS):
        q, k, v = _heads(g, x, places)
        k, v = (
            g.op("TensorScatter", past, now, written, axis=2)
            for past, now in zip(g.past(layer, _ROOM), (k, v), strict=True)
        )
        g.caches += [k, v]
        y = g.op("Attention", q, k, v, "", "", "", lengths, is_causal=1)
        x = _rest(g, x, g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.constant([0, 0, -1])))
    return g.finished(g.linear(g.op("RMSNormalization", x, g.norm()), _HIDDEN, _TOKENS))


def _heads(g: Decoder, x: str, places: str) -> tuple[str, str, str]:
    """Return queries, keys and values by heads, of which the first two are rotated."""
    y = g.op("RMSNormalization", x, g.norm(), epsilon=1e-6)
    q, k, v = (
        g.op("Reshape", g.linear(y, _HIDDEN, count * _WIDTH), g.constant([0, 0, count, _WIDTH]))
        for count in (_HEADS, _GROUPS, _GROUPS)
    )
    q, k, v = (g.op("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, k, v))
    return (*(g.op("RotaryEmbedding", part, g.cos, g.sin, places) for part in (q, k)), v)


def _rest(g: Decoder, x: str, y: str) -> str:
    """Add what is behind the attention of a layer."""
    x = g.op("Add", x, g.linear(y, _HEADS * _WIDTH, _HIDDEN))
    y = g.op("RMSNormalization", x, g.norm(), epsilon=1e-6)
    gate, up = (g.linear(y, _HIDDEN, _INNER) for _ in range(2))
    y = g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), up)
    return str(g.op("Add", x, g.linear(y, _INNER, _HIDDEN)))


DECODERS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "grouped": grouped,
    "exported": exported,
    "buffered": buffered,
}


def generated(
    run: Callable[[Feeds], list[AnyArray]], proto: onnx.ModelProto, steps: int
) -> Iterator[tuple[list[AnyArray], int]]:
    """Generate text from a prompt, with the likeliest token in each step.

    Yields:
        The outputs of each step, and how many steps of the caches are filled.
    """
    names = {info.name for info in proto.graph.input}
    room = _ROOM if "written" in names else 0
    caches = [np.zeros((_BATCH, _GROUPS, room, _WIDTH), "f4")] * (2 * LAYERS)
    ids = np.random.default_rng(4).integers(0, _TOKENS, (_BATCH, _PROMPT))
    before = 0
    for _ in range(steps):
        new = ids.shape[1]
        end = before + new
        places = np.broadcast_to(np.arange(before, end), ids.shape)
        feeds: Feeds = {
            "ids": ids,
            "places": places,
            "mask": np.ones((_BATCH, end), "i8"),
            "seen": np.broadcast_to(np.arange(end) <= places[:, None, :, None], (_BATCH, 1, new, end)),
            "written": np.full(_BATCH, before),
            "lengths": np.full(_BATCH, end),
        }
        for layer in range(LAYERS):
            for at, kind in enumerate(("key", "value")):
                feeds[f"past.{layer}.{kind}"] = caches[2 * layer + at]
        logits, *caches = run({name: np.ascontiguousarray(feeds[name]) for name in names})
        yield [logits, *caches], end
        ids = logits[:, -1].argmax(-1)[:, None]
        before = end
