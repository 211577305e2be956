"""Networks exported from torch, with both of its exporters. Needs the extra `nnrt[torch]`.

`python tests/onnx_import/torch_networks.py` writes them to torch_exports/, where those find them who have no torch.
"""

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

EXPORTS = Path(__file__).with_name("torch_exports")
EXPORTERS = ("torchscript", "dynamo")
# Of the exporter by TorchScript; the other has one of its own.
OPSET = 17


class Encoder(nn.Module):
    """Texts of any length as vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.table(tokens)).mean(1))


class Lstm(nn.Module):
    """Two layers in both directions, whose first states have the size of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (hidden, cell) = self.lstm(series)
        return self.head(y), hidden, cell


class FakeQuantize(nn.Module):
    """An activation after quantization to UINT8 and back."""

    def __init__(self, scale: float, zero_point: int) -> None:
        super().__init__()
        self.how = (scale, zero_point, 0, 255)

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            return torch.fake_quantize_per_tensor_affine(x, *self.how)
        # torch.export has no shapes for the operator above.
        quantized = torch.ops.quantized_decomposed.quantize_per_tensor(x, *self.how, torch.uint8)
        return torch.ops.quantized_decomposed.dequantize_per_tensor(quantized, *self.how, torch.uint8)


class QuantizedConv(nn.Conv2d):
    """A convolution with weights of INT8, each output channel with a scale of its own."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, 3, stride, 1)
        self.register_buffer("scales", self.weight.detach().abs().amax((1, 2, 3)) / 127)
        self.register_buffer("zero_points", torch.zeros(outputs, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        how = (self.scales, self.zero_points, 0, -128, 127)
        if torch.compiler.is_exporting():
            quantized = torch.ops.quantized_decomposed.quantize_per_channel(self.weight, *how, torch.int8)
            weight = torch.ops.quantized_decomposed.dequantize_per_channel(quantized, *how, torch.int8)
        else:
            weight = torch.fake_quantize_per_channel_affine(self.weight, *how)
        return functional.conv2d(x, weight, self.bias, self.stride, self.padding)


def quantized_cnn() -> nn.Module:
    return nn.Sequential(
        FakeQuantize(0.03, 128),
        QuantizedConv(3, 8, stride=2),
        nn.ReLU(),
        FakeQuantize(0.01, 0),
        QuantizedConv(8, 8, stride=1),
        nn.ReLU(),
        FakeQuantize(0.01, 0),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 16, 10),
        FakeQuantize(0.01, 128),
    )


class Detector(nn.Module):
    """The best boxes in images of any size: feature maps of three scales, and a box for each of their cells."""

    STRIDES = (8, 16, 32)

    def __init__(self, classes: int = 4, best: int = 8) -> None:
        super().__init__()
        self.best = best
        self.stem = nn.Sequential(_block(3, 8), _block(8, 12))
        self.stages = nn.ModuleList([_block(12, 12), _block(12, 16), _block(16, 24)])
        self.laterals = nn.ModuleList([nn.Conv2d(channels, 12, 1) for channels in (12, 16, 24)])
        self.heads = nn.ModuleList([nn.Conv2d(12, 5 + classes, 1) for _ in self.STRIDES])
        with torch.no_grad():
            for head in self.heads:
                head.weight *= 4

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.stem(image)
        maps = []
        for stage, lateral in zip(self.stages, self.laterals, strict=True):
            x = stage(x)
            maps.append(lateral(x))
        for finer in (1, 0):
            maps[finer] = maps[finer] + functional.interpolate(maps[finer + 1], scale_factor=2.0, mode="nearest")
        found = [self._decoded(*of_scale) for of_scale in zip(self.heads, maps, self.STRIDES, strict=True)]
        boxes, scores = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
        highest, classes = scores.max(-1)
        values, order = highest.topk(self.best, 1)
        return boxes.gather(1, order.unsqueeze(-1).expand(-1, -1, 4)), values, classes.gather(1, order)

    def _decoded(self, head: nn.Module, x: Tensor, stride: int) -> tuple[Tensor, Tensor]:
        raw = head(x).permute(0, 2, 3, 1)
        n, height, width, channels = raw.shape
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        grid = torch.stack((columns, rows), -1).to(raw.dtype)
        centre = (raw[..., :2].sigmoid() * 2 - 0.5 + grid) * stride
        half = raw[..., 2:4].exp() * stride / 2
        boxes = torch.cat((centre - half, centre + half), -1)
        scores = raw[..., 4:5].sigmoid() * raw[..., 5:].sigmoid()
        return boxes.reshape(n, height * width, 4), scores.reshape(n, height * width, channels - 5)


def _block(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.SiLU())


@dataclass(frozen=True)
class Network:
    """A network with what it is traced with; `free` names the dimensions that may be any.

    Those of `traced` stay what they were where TorchScript traces the network.
    """

    module: nn.Module
    given: Tensor
    input: str
    outputs: Sequence[str]
    free: dict[int, str]
    traced: Sequence[int] = ()


def networks() -> dict[str, Network]:
    """By name; the same at each call."""
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # It registers quantized_decomposed.
    torch.manual_seed(3)
    return {
        "transformer": Network(
            Encoder(), torch.randint(0, 50, (2, 7)), "tokens", ["vectors"], {0: "batch", 1: "length"}, [1]
        ),
        "lstm": Network(Lstm(), torch.randn(2, 5, 6), "series", ["y", "hidden", "cell"], {0: "batch"}),
        "quantized_cnn": Network(quantized_cnn(), torch.randn(2, 3, 16, 16), "image", ["logits"], {0: "batch"}),
        "detector": Network(
            Detector(),
            torch.randn(2, 3, 64, 96),
            "image",
            ["boxes", "scores", "classes"],
            {0: "batch", 2: "height", 3: "width"},
        ),
    }


def export(network: Network, exporter: str, path: Path) -> None:
    """Write a network as ONNX, without what the exporters note about its origin."""
    names = {"input_names": [network.input], "output_names": network.outputs}
    torch.backends.mha.set_fastpath_enabled(False)  # Exporters don't know the fused operator.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # What torch does with itself is not ours.
        module = network.module.eval()
        if exporter == "dynamo":
            how = {"dynamo": True, "dynamic_shapes": (network.free,), "external_data": False, "verbose": False}
        else:
            free = {axis: dim for axis, dim in network.free.items() if axis not in network.traced}
            how = {"dynamo": False, "dynamic_axes": {network.input: free}, "opset_version": OPSET}
        torch.onnx.export(module, (network.given,), path, **names, **how)
    proto = onnx.load(path)
    every: list[Any] = [proto, proto.graph, *proto.graph.node, *proto.graph.input, *proto.graph.output]
    for noted in every:
        del noted.metadata_props[:]
        noted.doc_string = ""
    del proto.graph.value_info[:]
    onnx.save(proto, path)


def write_exports(folder: Path) -> None:
    """Write each network by each exporter."""
    for name, network in networks().items():
        for exporter in EXPORTERS:
            export(network, exporter, folder / f"{name}-{exporter}.onnx")


if __name__ == "__main__":
    EXPORTS.mkdir(exist_ok=True)
    write_exports(EXPORTS)
