"""Networks whose nodes ONNX Runtime fuses, exported from torch, and quantized by ONNX Runtime's tools.

`python tests/onnx_import/fusion_networks.py FOLDER --large` writes them in realistic sizes; without arguments, it
writes the tests' small ones to fusion_exports/. Needs the extra `nnrt[exporters]`.
"""

import argparse
import math
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quant_pre_process,
    quantize_dynamic,
    quantize_static,
)
from torch import Tensor, nn
from torch.nn import functional

FOLDER = Path(__file__).with_name("fusion_exports")
OPSET = 17
VOCABULARY = 100
# Types of activations and weights in statically quantized networks.
KINDS = {
    "u8s8": (QuantType.QUInt8, QuantType.QInt8),
    "s8s8": (QuantType.QInt8, QuantType.QInt8),
    "u8u8": (QuantType.QUInt8, QuantType.QUInt8),
}

Activation = type[nn.Module] | None


def block(inputs: int, outputs: int, kernel: int, stride: int, activation: Activation, groups: int = 1) -> nn.Module:
    """Build a convolution with batch normalization and activation."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), *([activation()] if activation else []))


def classifier(channels: int, classes: int = 10) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Residual(nn.Module):
    """Residual block of ResNet-18: two convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(block(inputs, outputs, 3, stride, nn.ReLU), block(outputs, outputs, 3, 1, None))
        self.shortcut = nn.Identity() if stride == 1 else block(inputs, outputs, 1, stride, None)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


class Excited(nn.Module):
    """Squeeze and excitation: channel weights from the channels' means."""

    def __init__(self, channels: int, activation: type[nn.Module], gate: type[nn.Module]) -> None:
        super().__init__()
        inner = max(channels // 4, 4)
        self.weight = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, inner, 1), activation(), nn.Conv2d(inner, channels, 1), gate()
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight(x)


class Inverted(nn.Module):
    """Inverted residual of MobileNetV3 (HardSwish and HardSigmoid) or EfficientNet (SiLU and Sigmoid)."""

    def __init__(self, inputs: int, outputs: int, stride: int, activation: type[nn.Module]) -> None:
        super().__init__()
        wide = 4 * inputs
        is_hard = activation is nn.Hardswish
        excited = Excited(wide, nn.ReLU if is_hard else activation, nn.Hardsigmoid if is_hard else nn.Sigmoid)
        self.is_residual = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            block(inputs, wide, 1, 1, activation),
            block(wide, wide, 3, stride, activation, wide),
            excited,
            block(wide, outputs, 1, 1, None),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.is_residual else self.body(x)


def residual_network(width: int) -> nn.Module:
    stages = [Residual(width, width, 1), Residual(width, 2 * width, 2), Residual(2 * width, 4 * width, 2)]
    return nn.Sequential(block(3, width, 7, 2, nn.ReLU), nn.MaxPool2d(3, 2, 1), *stages, classifier(4 * width))


def mobile_network(width: int, activation: type[nn.Module]) -> nn.Module:
    stages = [
        Inverted(width, width, 1, activation),
        Inverted(width, 2 * width, 2, activation),
        Inverted(2 * width, 2 * width, 1, activation),
        Inverted(2 * width, 4 * width, 2, activation),
        Inverted(4 * width, 4 * width, 1, activation),
    ]
    return nn.Sequential(block(3, width, 3, 2, activation), *stages, classifier(4 * width))


class Attention(nn.Module):
    """Multi-head attention, in one of two forms.

    With `is_one`, it has one matrix for q, k and v, and uses torch's own function; otherwise it has three matrices and
    explicit products.
    """

    def __init__(self, width: int, heads: int, is_one: bool) -> None:
        super().__init__()
        self.heads, self.is_one = heads, is_one
        sizes = [3 * width] if is_one else [width] * 3
        self.given = nn.ModuleList([nn.Linear(width, size) for size in sizes])
        self.made = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        batch, length, width = x.shape
        parts = self.given[0](x).split(width, -1) if self.is_one else [linear(x) for linear in self.given]
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        if self.is_one:
            y = functional.scaled_dot_product_attention(q, k, v, mask)
        else:
            scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
            y = torch.softmax(scores if mask is None else scores + mask, -1) @ v
        return self.made(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    """Transformer layer, normalized before (ViT, GPT) or after (BERT) each part."""

    def __init__(self, width: int, heads: int, is_one: bool, is_first: bool, approximate: str) -> None:
        super().__init__()
        self.is_first = is_first
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = Attention(width, heads, is_one)
        self.dense = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate=approximate), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        one, other = self.norms
        if self.is_first:
            x = x + self.attention(one(x), mask)
            return x + self.dense(other(x))
        x = one(x + self.attention(x, mask))
        return other(x + self.dense(x))


class Bert(nn.Module):
    """Text encoder with a mask."""

    def __init__(self, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([Layer(width, heads, False, False, "none") for _ in range(layers)])

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = self.norm(self.words(tokens) + self.places(torch.arange(tokens.shape[1])))
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, hidden)
        return x


class Gpt(nn.Module):
    """Text decoder with tanh GELU."""

    def __init__(self, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList([Layer(width, heads, True, True, "tanh") for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.register_buffer("mask", torch.full((length, length), -1e4).triu(1))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x, self.mask)
        return self.head(self.norm(x))


class Vit(nn.Module):
    """Vision transformer."""

    def __init__(self, width: int, heads: int, layers: int, size: int, patch: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width))
        self.layers = nn.Sequential(*(Layer(width, heads, True, True, "none") for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


class UNet(nn.Module):
    """U-Net: three downsampling and three upsampling stages with skip connections."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList([self._pair(*pair) for pair in zip([3, *sizes], sizes, strict=False)])
        self.middle = self._pair(sizes[-1], 8 * width)
        self.up = nn.ModuleList([nn.ConvTranspose2d(2 * size, size, 2, 2) for size in reversed(sizes)])
        self.joined = nn.ModuleList([self._pair(2 * size, size) for size in reversed(sizes)])
        self.head = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _pair(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(block(inputs, outputs, 3, 1, nn.ReLU), block(outputs, outputs, 3, 1, nn.ReLU))

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for stage in self.down:
            kept.append(stage(x))
            x = functional.max_pool2d(kept[-1], 2)
        x = self.middle(x)
        for up, joined in zip(self.up, self.joined, strict=True):
            x = joined(torch.cat([up(x), kept.pop()], 1))
        return torch.sigmoid(self.head(x))


class TextDetector(nn.Module):
    """Text detector: feature maps of four scales, upsampled by nearest neighbour and merged."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        sizes = [width * 2**scale for scale in range(4)]
        self.stem = block(3, width, 3, 2, nn.Hardswish)
        self.stages = nn.ModuleList(
            [block(*pair, 3, 2, nn.Hardswish) for pair in zip([width, *sizes], sizes, strict=False)]
        )
        self.laterals = nn.ModuleList([nn.Conv2d(size, inner, 1, bias=False) for size in sizes])
        self.smooth = nn.ModuleList([nn.Conv2d(inner, inner // 4, 3, 1, 1, bias=False) for _ in sizes])
        self.head = nn.Sequential(
            block(inner, inner // 4, 3, 1, nn.ReLU), nn.ConvTranspose2d(inner // 4, 1, 4, 4), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        x, maps = self.stem(x), []
        for stage, lateral in zip(self.stages, self.laterals, strict=True):
            x = stage(x)
            maps.append(lateral(x))
        for scale in (2, 1, 0):
            maps[scale] = maps[scale] + functional.interpolate(maps[scale + 1], scale_factor=2.0, mode="nearest")
        maps = [smooth(y) for smooth, y in zip(self.smooth, maps, strict=True)]
        maps[1:] = [
            functional.interpolate(y, scale_factor=float(2**scale), mode="nearest")
            for scale, y in enumerate(maps[1:], 1)
        ]
        return self.head(torch.cat(maps[::-1], 1))


@dataclass(frozen=True)
class Network:
    """Network with example inputs and its quantizations: keys of KINDS, or "dynamic"."""

    module: nn.Module
    given: tuple[Tensor, ...]
    inputs: Sequence[str] = ("x",)
    quantized: Sequence[str] = ()
    free: dict[int, str] | None = None


def networks(is_large: bool) -> Iterator[tuple[str, Network]]:
    def image(size: int) -> tuple[Tensor]:
        return (torch.randn(1, 3, size, size),)

    torch.manual_seed(1)
    size, width = (224, 32) if is_large else (32, 4)
    length = 128 if is_large else 6
    sizes = (384, 6, 6) if is_large else (16, 2, 2)
    tokens = torch.randint(0, VOCABULARY, (1, length))
    yield "resnet", Network(residual_network(2 * width), image(size), quantized=list(KINDS))
    yield "mobilenet", Network(mobile_network(width, nn.Hardswish), image(size), quantized=["u8s8", "s8s8"])
    yield "efficientnet", Network(mobile_network(width, nn.SiLU), image(size))
    mask = torch.ones(1, length, dtype=torch.int64)
    yield "bert", Network(Bert(*sizes, length), (tokens, mask), ("tokens", "mask"), ["dynamic"])
    yield "gpt", Network(Gpt(*sizes, length), (tokens,), ("tokens",))
    patch = 16 if is_large else 8
    yield "vit", Network(Vit(*sizes, size, patch), image(size), quantized=["u8s8", "dynamic"])
    yield "unet", Network(UNet(width // 2), image(128 if is_large else 16))
    detector = TextDetector(width // 2, 96 if is_large else 8)
    side = 480 if is_large else 64
    yield "detector", Network(detector, image(side), quantized=["u8s8"])
    yield "detector_any", Network(detector, image(side), free={2: "height", 3: "width"})


class Examples(CalibrationDataReader):
    """Random images as calibration data."""

    def __init__(self, network: Network) -> None:
        shapes = {name: tuple(given.shape) for name, given in zip(network.inputs, network.given, strict=True)}
        rng = np.random.default_rng(1)
        self.rest = iter(
            [{name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()} for _ in range(2)]
        )

    def get_next(self) -> Any:
        return next(self.rest, None)


def export(network: Network, path: Path, *, is_dynamo: bool) -> None:
    """Write a network as ONNX with one of torch's exporters."""
    how: dict[str, Any] = {"input_names": list(network.inputs), "output_names": ["y"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own warnings.
        if is_dynamo:
            how |= {"dynamo": True, "external_data": False, "verbose": False}
            how["dynamic_shapes"] = [network.free] if network.free else None
        else:
            how |= {"dynamo": False, "opset_version": OPSET}
            how["dynamic_axes"] = {network.inputs[0]: network.free} if network.free else None
        torch.onnx.export(network.module.eval(), network.given, str(path), **how)
    without_origins(path)


def without_origins(path: Path) -> None:
    """Remove the metadata that exporters add."""
    proto = onnx.load(path)
    every: list[Any] = [proto, proto.graph, *proto.graph.node, *proto.graph.input, *proto.graph.output]
    for noted in every:
        del noted.metadata_props[:]
        noted.doc_string = ""
    del proto.graph.value_info[:]
    onnx.save(proto, path)


def quantize(network: Network, path: Path, made: Path, kind: str) -> None:
    """Write the quantized form of an exported network."""
    if kind == "dynamic":
        quantize_dynamic(path, made, weight_type=QuantType.QInt8)
    else:
        activations, weights = KINDS[kind]
        with tempfile.TemporaryDirectory() as folder:
            prepared = Path(folder, "prepared.onnx")
            quant_pre_process(path, prepared)
            quantize_static(
                prepared,
                made,
                Examples(network),
                QuantFormat.QDQ,
                activation_type=activations,
                weight_type=weights,
                per_channel=weights is QuantType.QInt8,
            )
    without_origins(made)


def write_exports(folder: Path, is_large: bool) -> None:
    """Write each network by both exporters, and the quantized forms of the TorchScript export."""
    folder.mkdir(exist_ok=True)
    for name, network in networks(is_large):
        export(network, folder / f"{name}-dynamo.onnx", is_dynamo=True)
        path = folder / f"{name}-torchscript.onnx"
        export(network, path, is_dynamo=False)
        for kind in network.quantized:
            quantize(network, path, folder / f"{name}-{kind}.onnx", kind)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    parser.add_argument("--large", action="store_true", help="as large as such networks are")
    given = parser.parse_args()
    write_exports(given.folder, given.large)
