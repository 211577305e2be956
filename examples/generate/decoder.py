"""A decoder in numpy: it gives each token of a text scores for the token that follows, and learns from texts.

Each layer adds to x what two blocks make of it, normed::

    tokens [batch, steps]
      embedding                                      x [batch, steps, width]
      layers times
        x += attention(norm(x))                      causal, by heads; positions turn queries and keys
        x += max(norm(x) @ up, 0) ** 2 @ down
      norm(x) @ head                                 logits [batch, steps, tokens]

`loss_and_gradients` goes the same way back.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Tokens = npt.NDArray[np.int64]
Weights = dict[str, Array]

EPSILON = 1e-5
# The slowest of the turns of queries and keys takes about this many positions.
SLOWEST = 10000.0


@dataclass(frozen=True)
class Sizes:
    """Sizes of a decoder: by default it has 2.9 million weights; with `width=512, layers=9`, 30 million."""

    tokens: int = 1024
    width: int = 256
    heads: int = 4
    layers: int = 3

    @property
    def head_width(self) -> int:
        return self.width // self.heads


def random_weights(sizes: Sizes, seed: int = 0) -> Weights:
    """Return the weights of a decoder that has learned nothing."""
    rng = np.random.default_rng(seed)
    width, inner = sizes.width, 4 * sizes.width
    blocks = {"queries": (width, width), "keys": (width, width), "values": (width, width), "mixed": (width, width)}
    blocks |= {"up": (width, inner), "down": (inner, width)}
    shapes: dict[str, tuple[int, ...]] = {"embedding": (sizes.tokens, width)}
    for layer in range(sizes.layers):
        shapes |= {f"{layer}.{name}": shape for name, shape in blocks.items()}
        shapes |= {f"{layer}.attention_norm": (width,), f"{layer}.inner_norm": (width,)}
    shapes |= {"norm": (width,), "head": (width, sizes.tokens)}
    weights: Weights = {}
    for name, shape in shapes.items():
        # What is added to x, and the logits, are small at first: training begins faster.
        spread = (0.1 if name.endswith(("mixed", "down", "head")) else 1) / math.sqrt(shape[0])
        spread = 0.3 if name == "embedding" else spread
        drawn = rng.standard_normal(shape) * spread if len(shape) > 1 else np.ones(shape)
        weights[name] = drawn.astype(np.float32)
    return weights


def turn_rates(sizes: Sizes) -> Array:
    """Return by how much a position turns each pair of elements of queries and keys."""
    half = sizes.head_width // 2
    rates: Array = (SLOWEST ** -(np.arange(half) / half)).astype(np.float32)
    return rates


# --- The parts, each with its gradient ----------------------------------------------------------


def norm(x: Array, scale: Array) -> Array:
    """Scale each vector to the mean square 1, then multiply its elements by `scale`."""
    return _unit(x)[0] * scale


def norm_gradients(x: Array, scale: Array, dy: Array) -> tuple[Array, Array]:
    """Return the gradients of `norm` with respect to x and scale."""
    unit, size = _unit(x)
    d_unit = dy * scale
    dx: Array = (d_unit - unit * (d_unit * unit).mean(-1, keepdims=True)) / size
    return dx, (dy * unit).sum((0, 1))


def _unit(x: Array) -> tuple[Array, Array]:
    size: Array = np.sqrt(np.square(x).mean(-1, keepdims=True) + np.float32(EPSILON))
    return x / size, size


def linear(x: Array, weight: Array) -> Array:
    """Compute x @ weight as one product of matrices, which is much faster than one for each text."""
    y: Array = x.reshape(-1, len(weight)) @ weight
    return y.reshape(*x.shape[:-1], -1)


def linear_gradients(x: Array, weight: Array, dy: Array) -> tuple[Array, Array]:
    """Return the gradients of `linear` with respect to x and weight."""
    return linear(dy, weight.T), x.reshape(-1, len(weight)).T @ dy.reshape(-1, dy.shape[-1])


def by_heads(x: Array, heads: int) -> Array:
    """Cut vectors into heads: [batch, steps, width] -> [batch, heads, steps, head width]."""
    parts: Array = x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
    return parts


def joined(x: Array) -> Array:
    """Join the heads again."""
    batch, _, steps, _ = x.shape
    rows: Array = x.swapaxes(1, 2).reshape(batch, steps, -1)
    return rows


def turned(x: Array, rates: Array, direction: int = 1) -> Array:
    """Turn element i of each head's half and of its other half by the angle position * rates[i]."""
    angles = np.arange(x.shape[2], dtype=np.float32)[:, None] * (direction * rates)
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attended(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """Return for each step the mean of the values so far, and the shares of these in it."""
    scores = q @ k.swapaxes(2, 3) / np.float32(math.sqrt(q.shape[-1]))
    scores += np.triu(np.full(scores.shape[-2:], -np.inf, np.float32), 1)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return shares @ v, shares


def attended_gradients(q: Array, k: Array, v: Array, shares: Array, dy: Array) -> tuple[Array, Array, Array]:
    """Return the gradients of `attended` with respect to q, k and v."""
    d_shares = dy @ v.swapaxes(2, 3)
    d_scores = shares * (d_shares - (d_shares * shares).sum(-1, keepdims=True))
    d_scores /= np.float32(math.sqrt(q.shape[-1]))
    return d_scores @ k, d_scores.swapaxes(2, 3) @ q, shares.swapaxes(2, 3) @ dy


# --- The network --------------------------------------------------------------------------------


@dataclass
class Layer:
    """Arrays that a layer has computed, from which its gradients are computed."""

    x: Array
    normed: Array
    q: Array
    k: Array
    v: Array
    shares: Array
    mixed: Array
    middle: Array
    middle_normed: Array
    active: Array


class Decoder:
    """A decoder of these sizes and weights."""

    def __init__(self, sizes: Sizes, weights: Weights) -> None:
        self.sizes = sizes
        self.weights = weights
        self._rates = turn_rates(sizes)

    def logits(self, tokens: Tokens) -> Array:
        """Return scores of all tokens, for each place of texts [batch, steps]."""
        _, x = self._forward(tokens)
        return linear(norm(x, self.weights["norm"]), self.weights["head"])

    def loss_and_gradients(self, tokens: Tokens) -> tuple[float, Weights]:
        """Return by how much the decoder is wrong about each next token, in nats, and the gradient of each weight."""
        tokens, following = tokens[:, :-1], tokens[:, 1:, None]
        layers, x = self._forward(tokens)
        normed = norm(x, self.weights["norm"])
        logits = linear(normed, self.weights["head"])
        logits -= logits.max(-1, keepdims=True)
        chances = np.exp(logits)
        chances /= chances.sum(-1, keepdims=True)
        right = np.take_along_axis(chances, following, -1)
        loss = -float(np.log(right + np.float32(1e-12)).mean())
        np.put_along_axis(chances, following, right - 1, -1)

        grads: Weights = {}
        d_normed, grads["head"] = linear_gradients(normed, self.weights["head"], chances / np.float32(tokens.size))
        dx, grads["norm"] = norm_gradients(x, self.weights["norm"], d_normed)
        for number in reversed(range(self.sizes.layers)):
            dx = self._back(number, layers[number], dx, grads)
        grads["embedding"] = np.zeros_like(self.weights["embedding"])
        np.add.at(grads["embedding"], tokens, dx)
        return loss, grads

    def _forward(self, tokens: Tokens) -> tuple[list[Layer], Array]:
        layers: list[Layer] = []
        x = self.weights["embedding"][tokens]
        for number in range(self.sizes.layers):
            layer, x = self._layer(number, x)
            layers.append(layer)
        return layers, x

    def _layer(self, number: int, x: Array) -> tuple[Layer, Array]:
        w = self._of_layer(number)
        normed = norm(x, w["attention_norm"])
        q, k, v = (by_heads(linear(normed, w[name]), self.sizes.heads) for name in ("queries", "keys", "values"))
        q, k = turned(q, self._rates), turned(k, self._rates)
        y, shares = attended(q, k, v)
        mixed = joined(y)
        middle = x + linear(mixed, w["mixed"])
        middle_normed = norm(middle, w["inner_norm"])
        active = np.maximum(linear(middle_normed, w["up"]), 0)
        layer = Layer(x, normed, q, k, v, shares, mixed, middle, middle_normed, active)
        return layer, middle + linear(np.square(active), w["down"])

    def _back(self, number: int, layer: Layer, dy: Array, grads: Weights) -> Array:
        """Add the gradients of a layer's weights, and return that of its x."""
        w, heads, g = self._of_layer(number), self.sizes.heads, Weights()
        d_square, g["down"] = linear_gradients(np.square(layer.active), w["down"], dy)
        d_normed, g["up"] = linear_gradients(layer.middle_normed, w["up"], 2 * layer.active * d_square)
        d_middle, g["inner_norm"] = norm_gradients(layer.middle, w["inner_norm"], d_normed)
        d_middle += dy

        d_mixed, g["mixed"] = linear_gradients(layer.mixed, w["mixed"], d_middle)
        dq, dk, dv = attended_gradients(layer.q, layer.k, layer.v, layer.shares, by_heads(d_mixed, heads))
        dq, dk = turned(dq, self._rates, -1), turned(dk, self._rates, -1)
        d_normed = np.zeros_like(dy)
        for name, part in (("queries", dq), ("keys", dk), ("values", dv)):
            more, g[name] = linear_gradients(layer.normed, w[name], joined(part))
            d_normed += more
        dx, g["attention_norm"] = norm_gradients(layer.x, w["attention_norm"], d_normed)
        grads |= {f"{number}.{name}": grad for name, grad in g.items()}
        return dx + d_middle

    def _of_layer(self, number: int) -> Weights:
        start = f"{number}."
        return {name.removeprefix(start): weight for name, weight in self.weights.items() if name.startswith(start)}
