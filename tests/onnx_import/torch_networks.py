"""Networks exported by both of torch's exporters. Needs the extra `nnrt[exporters]`.

`python tests/onnx_import/torch_networks.py` writes them to torch_exports/, so that tests need no torch.
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
# Opset of the TorchScript exporter; the dynamo exporter uses its own default.
OPSET = 17


class Encoder(nn.Module):
    """Transformer encoder for texts of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.table(tokens)).mean(1))


class Lstm(nn.Module):
    """Bidirectional LSTM of two layers, whose initial states have the batch's size."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (hidden, cell) = self.lstm(series)
        return self.head(y), hidden, cell


class FakeQuantize(nn.Module):
    """Quantization to UINT8 and dequantization of an activation."""

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
    """Convolution with INT8 weights and a scale per output channel."""

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
    """Detector for images of any size: feature maps of three scales, a box per cell, and the best boxes."""

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


class TextEncoder(nn.Module):
    """Text encoder like BERT, with a mask; its position embeddings are sliced to the length of the text."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.kinds = nn.Embedding(50, 16), nn.Embedding(32, 16), nn.Embedding(2, 16)
        self.query, self.key, self.value, self.output = (nn.Linear(16, 16) for _ in range(4))
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.norm, self.last_norm = nn.LayerNorm(16), nn.LayerNorm(16)
        self.register_buffer("numbers", torch.arange(32).expand(1, -1))

    def forward(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        n, length = tokens.shape
        places = self.places(self.numbers[:, :length])
        x = self.norm(self.words(tokens) + places + self.kinds(torch.zeros_like(tokens)))
        bias = (1 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        query, key, value = (_heads(part(x)) for part in (self.query, self.key, self.value))
        weights = (query @ key.transpose(-1, -2) / 2 + bias).softmax(-1)
        x = x + self.output((weights @ value).permute(0, 2, 1, 3).reshape(n, length, 16))
        x = self.last_norm(x + self.down(functional.gelu(self.up(x))))
        counts = mask[:, :, None].to(x.dtype)
        return x, (x * counts).sum(1) / counts.sum(1).clamp(min=1e-9)


class Decoder(nn.Module):
    """Text decoder with a causal mask and a cache of earlier keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(64, 16)
        self.norm, self.parts, self.output = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.head = nn.Linear(16, 50)

    def forward(self, tokens: Tensor, past_key: Tensor, past_value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        n, length = tokens.shape
        past = past_key.shape[2]
        x = self.words(tokens) + self.places(torch.arange(past, past + length))
        query, key, value = (_heads(part) for part in self.parts(self.norm(x)).split(16, -1))
        key, value = torch.cat((past_key, key), 2), torch.cat((past_value, value), 2)
        is_seen = torch.ones(length, past + length, dtype=torch.bool).tril(diagonal=past)
        scores = (query @ key.transpose(-1, -2) / 2).masked_fill(~is_seen, float("-inf"))
        y = (scores.softmax(-1) @ value).transpose(1, 2).reshape(n, length, 16)
        return self.head(x + self.output(y)), key, value


def _heads(x: Tensor) -> Tensor:
    """Split vectors of 16 into 4 heads of 4: [batch, heads, length, 4]."""
    return x.view(x.shape[0], x.shape[1], 4, 4).transpose(1, 2)


class Unet(nn.Module):
    """U-Net for images of any size: upsampled maps are padded to the sizes of the saved ones."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([_conv(3, 4), _conv(4, 8), _conv(8, 8)])
        self.up = nn.ModuleList([_conv(16, 8), _conv(12, 4)])
        self.grow = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.head = nn.Conv2d(4, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        high = self.down[0](image)
        middle = self.down[1](functional.max_pool2d(high, 2))
        x = self.down[2](functional.max_pool2d(middle, 2))
        for conv, skipped in zip(self.up, (middle, high), strict=True):
            x = self.grow(x)
            rows, columns = skipped.shape[2] - x.shape[2], skipped.shape[3] - x.shape[3]
            x = functional.pad(x, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2])
            x = conv(torch.cat([skipped, x], 1))
        return self.head(x)


def _conv(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, 1, 1), nn.BatchNorm2d(outputs), nn.ReLU())


class Segmenter(nn.Module):
    """Segmentation network for images of any size: three scales, each resized to the size of the next."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList([nn.Conv2d(inputs, 8, 3, 2, 1) for inputs in (3, 8, 8)])
        self.laterals = nn.ModuleList([nn.Conv2d(8, 8, 1) for _ in range(2)])
        self.head = nn.Conv2d(8, 3, 3, 1, 1)

    def forward(self, image: Tensor) -> Tensor:
        maps = [image]
        for stage in self.stages:
            maps.append(stage(maps[-1]).relu())
        _, finest, finer, coarse = maps
        x = coarse
        for lateral, one in zip(self.laterals, (finer, finest), strict=True):
            x = functional.interpolate(x, size=one.shape[-2:], mode="nearest") + lateral(one)
        whole = functional.adaptive_avg_pool2d(coarse, 1)
        x = x + functional.interpolate(whole, size=x.shape[-2:], mode="bilinear", align_corners=False)
        return functional.interpolate(self.head(x), size=image.shape[-2:], mode="bilinear", align_corners=False)


class Gru(nn.Module):
    """Speech recognizer of a fixed number of frames, which returns its state."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.gru, self.head = (
            nn.LayerNorm(6),
            nn.GRU(6, 8, bidirectional=True, batch_first=True),
            nn.Linear(16, 4),
        )

    def forward(self, frames: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, state = self.gru(self.norm(frames), state)
        return self.head(y).log_softmax(-1), state


class VisionTransformer(nn.Module):
    """Vision transformer with a class token before the patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, 8)
        self.first, self.places = (nn.Parameter(torch.randn(1, count, 16)) for count in (1, 17))
        layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(16, 10)

    def forward(self, image: Tensor) -> Tensor:
        patches = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(patches.shape[0], -1, -1), patches), 1) + self.places
        return self.head(self.encoder(x)[:, 0])


class SpeechActivity(nn.Module):
    """Voice activity detector with a state, and a different first layer for each sampling rate."""

    def __init__(self) -> None:
        super().__init__()
        self.high, self.low = nn.Conv1d(1, 8, 16, 8), nn.Conv1d(1, 8, 8, 4)
        self.cell, self.head = nn.LSTMCell(8, 8), nn.Linear(8, 1)

    def forward(self, samples: Tensor, state: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        x = samples.unsqueeze(1)
        if not torch.jit.is_scripting():
            y = self._of_branch(x, rate)
        elif bool(rate == 16000):
            y = self._of_high(x)
        else:
            y = self._of_low(x)
        hidden, cell = self.cell(y, (state[0], state[1]))
        return self.head(hidden).sigmoid(), torch.stack((hidden, cell))

    def _of_high(self, x: Tensor) -> Tensor:
        return self.high(x).relu().mean(-1)

    def _of_low(self, x: Tensor) -> Tensor:
        return self.low(x).relu().mean(-1)

    @torch.jit.unused
    def _of_branch(self, x: Tensor, rate: Tensor) -> Tensor:
        """Choose the layer with torch.cond, which torch.export needs and TorchScript doesn't support."""
        return torch.cond(rate == 16000, self._of_high, self._of_low, (x,))


@dataclass(frozen=True)
class Network:
    """Network with its example inputs by name; `free` names the dynamic dimensions.

    The TorchScript exporter keeps the dimensions in `traced` fixed. It compiles a network with `branches` instead of
    tracing it.
    """

    module: nn.Module
    given: dict[str, Tensor]
    outputs: Sequence[str]
    free: dict[str, dict[int, str]]
    traced: Sequence[str] = ()
    branches: bool = False


def networks() -> dict[str, Network]:
    """Return the networks by name, the same at each call."""
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # It registers quantized_decomposed.
    torch.manual_seed(3)
    batch, text, size = {0: "batch"}, {0: "batch", 1: "length"}, {0: "batch", 2: "height", 3: "width"}
    tokens, cached, images = torch.randint(0, 50, (2, 7)), {0: "batch", 2: "past"}, torch.randn(2, 3, 37, 46)
    return {
        "transformer": Network(Encoder(), {"tokens": tokens}, ["vectors"], {"tokens": text}, ["length"]),
        "lstm": Network(Lstm(), {"series": torch.randn(2, 5, 6)}, ["y", "hidden", "cell"], {"series": batch}),
        "quantized_cnn": Network(quantized_cnn(), {"image": torch.randn(2, 3, 16, 16)}, ["logits"], {"image": batch}),
        "detector": Network(
            Detector(), {"image": torch.randn(2, 3, 64, 96)}, ["boxes", "scores", "classes"], {"image": size}
        ),
        "text_encoder": Network(
            TextEncoder(),
            {"tokens": tokens, "mask": torch.ones_like(tokens)},
            ["vectors", "means"],
            {"tokens": text, "mask": text},
        ),
        "decoder": Network(
            Decoder(),
            {"tokens": tokens, "past_key": torch.randn(2, 4, 5, 4), "past_value": torch.randn(2, 4, 5, 4)},
            ["logits", "key", "value"],
            {"tokens": text, "past_key": cached, "past_value": cached},
        ),
        "unet": Network(Unet(), {"image": images}, ["mask"], {"image": size}),
        "segmenter": Network(Segmenter(), {"image": images}, ["classes"], {"image": size}),
        "gru": Network(
            Gru(),
            {"frames": torch.randn(2, 12, 6), "state": torch.randn(2, 2, 8)},
            ["characters", "next_state"],
            {"frames": batch, "state": {1: "batch"}},
        ),
        "speech_activity": Network(
            SpeechActivity(),
            {"samples": torch.randn(2, 64), "state": torch.randn(2, 2, 8), "rate": torch.tensor(16000)},
            ["speech", "next_state"],
            {"samples": {0: "batch", 1: "count"}, "state": {1: "batch"}},
            branches=True,
        ),
        "vision_transformer": Network(
            VisionTransformer(), {"image": torch.randn(2, 3, 32, 32)}, ["logits"], {"image": batch}
        ),
    }


def export(network: Network, exporter: str, path: Path) -> None:
    """Write a network as ONNX, without the exporter's metadata."""
    names = {"input_names": list(network.given), "output_names": network.outputs}
    given = tuple(network.given.values())
    torch.backends.mha.set_fastpath_enabled(False)  # Exporters don't know the fused operator.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own warnings.
        module = network.module.eval()
        if exporter == "dynamo":
            free = tuple(network.free.get(name, {}) for name in network.given)
            how = {"dynamo": True, "dynamic_shapes": free, "external_data": False, "verbose": False}
        else:
            axes = {
                name: {axis: dim for axis, dim in dims.items() if dim not in network.traced}
                for name, dims in network.free.items()
            }
            module = torch.jit.script(module) if network.branches else module
            how = {"dynamo": False, "dynamic_axes": axes, "opset_version": OPSET}
        torch.onnx.export(module, given, path, **names, **how)
    proto = onnx.load(path)
    every: list[Any] = [proto, proto.graph, *proto.graph.node, *proto.graph.input, *proto.graph.output]
    for noted in every:
        del noted.metadata_props[:]
        noted.doc_string = ""
    del proto.graph.value_info[:]
    onnx.save(proto, path)


def write_exports(folder: Path) -> None:
    """Write each network with each exporter."""
    for name, network in networks().items():
        for exporter in EXPORTERS:
            export(network, exporter, folder / f"{name}-{exporter}.onnx")


if __name__ == "__main__":
    EXPORTS.mkdir(exist_ok=True)
    write_exports(EXPORTS)
