"""The decoder as an ONNX model, which is given the keys and values of earlier tokens, and returns them with its own.

With `growing` caches, which exporters write, each run makes them longer by its tokens. With `fixed` caches of some room
each text of a batch has its own position, from which its tokens are written into the room. So texts of any lengths can
be computed together.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from decoder import EPSILON, Decoder, turn_rates
from onnx import TensorProto, helper, numpy_helper
from train_decoder import load

OPSET, IR_VERSION = 23, 10
# Added to the score of what a token may not see.
HIDDEN = np.float32(-1e9)

# Makes of a layer, "key" or "value", and those of the new tokens the ones of all tokens.
Remember = Callable[[int, str, str], str]


def growing(decoder: Decoder) -> onnx.ModelProto:
    """Return the model with caches [batch, heads, past, head width], which may be empty at first.

    `attention_mask` has a 0 for each earlier or new token that is none, such as those with which short texts of a batch
    are filled up on the left. `position_ids` are the positions of the new tokens.
    """
    g = Graph(decoder)
    tokens = g.input("input_ids", TensorProto.INT64, "batch", "steps")
    mask = g.input("attention_mask", TensorProto.INT64, "batch", "past+steps")
    positions = g.input("position_ids", TensorProto.INT64, "batch", "steps")
    end = g.length(mask)
    own = g.op("Range", g.op("Sub", end, g.length(tokens)), end, g.constant(1))
    causal = g.op("LessOrEqual", g.op("Range", g.constant(0), end, g.constant(1)), g.unsqueezed(own, 1))
    seen = g.op("And", causal, g.unsqueezed(g.op("Cast", mask, to=TensorProto.BOOL), 1, 2))

    def remember(layer: int, kind: str, new: str) -> str:
        return g.op("Concat", g.past(layer, kind, "past"), new, axis=2)

    return _model(g, tokens, positions, seen, remember, "past+steps")


def fixed(decoder: Decoder, room: int = 256) -> onnx.ModelProto:
    """Return the model with caches [batch, heads, room, head width], of zeros at first.

    `positions` [batch] are those of the first of the new tokens. What lies at and behind a token's position in the
    room doesn't count. Tokens beyond the room are not remembered.
    """
    g = Graph(decoder)
    tokens = g.input("input_ids", TensorProto.INT64, "batch", "steps")
    first = g.input("positions", TensorProto.INT64, "batch")
    steps = g.op("Range", g.constant(0), g.length(tokens), g.constant(1))
    positions = g.op("Add", g.unsqueezed(first, 1), steps)
    places = g.constant(np.arange(room))
    seen = g.unsqueezed(g.op("LessOrEqual", places, g.unsqueezed(positions, 2)), 1)
    # [batch, 1, room, steps]: 1 where a token has its place.
    chosen = g.op("Equal", g.constant(np.arange(room)[:, None]), g.unsqueezed(positions, 1, 2))
    chosen = g.op("Cast", chosen, to=TensorProto.FLOAT)
    is_written = g.op("Cast", g.op("ReduceSum", chosen, g.constant([3])), to=TensorProto.BOOL)

    def remember(layer: int, kind: str, new: str) -> str:
        return g.op("Where", is_written, g.op("MatMul", chosen, new), g.past(layer, kind, room))

    return _model(g, tokens, positions, seen, remember, room)


def _model(
    g: "Graph", tokens: str, positions: str, seen: str, remember: Remember, remembered: str | int
) -> onnx.ModelProto:
    """Add the layers, which are those of `Decoder`, to what a kind of caches has prepared."""
    sizes = g.decoder.sizes
    hidden = g.op("Where", seen, g.constant(np.float32(0)), g.constant(HIDDEN))
    places = g.op("Cast", g.unsqueezed(positions, 2), to=TensorProto.FLOAT)
    angles = g.op("Mul", places, g.constant(turn_rates(sizes)))
    turns = [g.op("Cos", angles), g.op("Sin", angles)]

    def attention(layer: int, x: str) -> str:
        q, k, v = (g.by_heads(g.op("MatMul", x, f"{layer}.{name}")) for name in ("queries", "keys", "values"))
        q, k = (g.op("RotaryEmbedding", part, *turns) for part in (q, k))
        k, v = remember(layer, "key", k), remember(layer, "value", v)
        for kind, all_ in (("key", k), ("value", v)):
            g.output(f"present.{layer}.{kind}", all_, "batch", sizes.heads, remembered, sizes.head_width)
        y = g.op("Transpose", g.op("Attention", q, k, v, hidden), perm=[0, 2, 1, 3])
        return g.op("MatMul", g.op("Reshape", y, g.constant([0, 0, sizes.width])), f"{layer}.mixed")

    def inner(layer: int, x: str) -> str:
        active = g.op("Relu", g.op("MatMul", x, f"{layer}.up"))
        return g.op("MatMul", g.op("Mul", active, active), f"{layer}.down")

    x = g.op("Gather", "embedding", tokens)
    for layer in range(sizes.layers):
        x = g.op("Add", x, attention(layer, g.norm(x, f"{layer}.attention_norm")))
        x = g.op("Add", x, inner(layer, g.norm(x, f"{layer}.inner_norm")))
    g.output("logits", g.op("MatMul", g.norm(x, "norm"), "head"), "batch", "steps", sizes.tokens)
    return g.model()


class Graph:
    """ONNX graph under construction, with the weights of a decoder."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._constants = [numpy_helper.from_array(weight, name) for name, weight in decoder.weights.items()]

    def input(self, name: str, type_: int, *shape: int | str) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, type_, shape))
        return name

    def past(self, layer: int, kind: str, length: int | str) -> str:
        """Add the input for a layer's keys or values."""
        sizes = self.decoder.sizes
        shape = ("batch", sizes.heads, length, sizes.head_width)
        return self.input(f"past_key_values.{layer}.{kind}", TensorProto.FLOAT, *shape)

    def output(self, name: str, value: str, *shape: int | str) -> None:
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def constant(self, value: Any) -> str:
        name = f"constant.{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def op(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator}.{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def length(self, x: str) -> str:
        """Return the size of dimension 1."""
        return self.op("Squeeze", self.op("Shape", x, start=1, end=2))

    def unsqueezed(self, x: str, *axes: int) -> str:
        return self.op("Unsqueeze", x, self.constant(list(axes)))

    def norm(self, x: str, scale: str) -> str:
        return self.op("RMSNormalization", x, scale, epsilon=EPSILON)

    def by_heads(self, x: str) -> str:
        shape = self.constant([0, 0, self.decoder.sizes.heads, self.decoder.sizes.head_width])
        return self.op("Transpose", self.op("Reshape", x, shape), perm=[0, 2, 1, 3])

    def model(self) -> onnx.ModelProto:
        """Return the checked model."""
        graph = helper.make_graph(self._nodes, "decoder", self._inputs, self._outputs, self._constants)
        opsets = [helper.make_opsetid("", OPSET)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="nnrt")
        onnx.checker.check_model(made)
        return made


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--room", default=256, show_default=True, help="Tokens that fixed caches hold.")
def main(folder: Path, room: int) -> None:
    """Write growing.onnx and fixed.onnx with the trained decoder into a folder."""
    _, decoder = load()
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(growing(decoder), folder / "growing.onnx")
    onnx.save(fixed(decoder, room), folder / "fixed.onnx")


if __name__ == "__main__":
    main()
