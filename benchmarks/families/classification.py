"""Image classification networks."""

import torch
from torch import Tensor, nn

from families.layers import Head, Residual, SqueezeExcite, conv
from families.network import DYNAMIC, FP16, QDQ, QOPERATOR, Network, real

FAMILY = "classification"


def resnet() -> nn.Module:
    """Build a ResNet with bottlenecks (He et al. 2015)."""

    def block(inputs: int, outputs: int, stride: int) -> nn.Module:
        inner = outputs // 4
        layers = conv(inputs, inner, 1), conv(inner, inner, 3, stride), conv(inner, outputs, 1, act=None)
        shortcut = conv(inputs, outputs, 1, stride, act=None) if inputs != outputs else None
        return nn.Sequential(Residual(*layers, shortcut=shortcut), nn.ReLU())

    stages = [(64, 128, 1), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    stem = conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)
    return nn.Sequential(*stem, *(block(*stage) for stage in stages), Head(512))


def inverted(act: type[nn.Module], gate: type[nn.Module]) -> nn.Module:
    """Build inverted residuals with squeeze and excitation: MobileNetV3 or, with SiLU, EfficientNet."""

    def block(inputs: int, outputs: int, stride: int, size: int) -> nn.Module:
        inner = 4 * inputs
        layers = [
            conv(inputs, inner, 1, act=act),
            conv(inner, inner, size, stride, inner, act),
            SqueezeExcite(inner, act if act is nn.SiLU else nn.ReLU, gate),
            conv(inner, outputs, 1, act=None),
        ]
        return Residual(*layers, adds=inputs == outputs)

    stages = [(16, 24, 2, 3), (24, 24, 1, 3), (24, 40, 2, 5), (40, 40, 1, 5), (40, 80, 2, 3), (80, 80, 1, 3)]
    return nn.Sequential(
        conv(3, 16, 3, 2, act=act), *(block(*stage) for stage in stages), conv(80, 256, 1, act=act), Head(256)
    )


class Shuffle(nn.Module):
    """ShuffleNet unit: compute half of the channels, then shuffle both halves (Ma et al. 2018)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.body = nn.Sequential(conv(half, half, 1), conv(half, half, 3, 1, half, None), conv(half, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, 1)
        x = torch.cat((first, self.body(second)), 1)
        batch, channels, height, width = x.shape
        return x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(batch, channels, height, width)


def shufflenet() -> nn.Module:
    stages = [layer for n in (48, 96, 192) for layer in (conv(n // 2, n, 3, 2), Shuffle(n), Shuffle(n))]
    return nn.Sequential(conv(3, 24, 3, 2), *stages, Head(192))


class Inception(nn.Module):
    """Inception block: branches with different kernel sizes (Szegedy et al. 2014)."""

    def __init__(self, inputs: int, each: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [
                conv(inputs, each, 1),
                nn.Sequential(conv(inputs, each, 1), conv(each, each, 3)),
                nn.Sequential(conv(inputs, each, 1), conv(each, each, 3), conv(each, each, 3)),
                nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(inputs, each, 1)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def inception() -> nn.Module:
    body = Inception(32, 32), nn.MaxPool2d(3, 2, ceil_mode=True), Inception(128, 48), Inception(192, 64)
    return nn.Sequential(conv(3, 32, 3, 2), nn.LocalResponseNorm(5), nn.MaxPool2d(3, 2), *body, Head(256))


class ConvNext(nn.Module):
    """ConvNeXt block: depthwise 7x7 convolution and LayerNorm in channels-last layout (Liu et al. 2022)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, 1, 3, groups=channels)
        self.norm = nn.LayerNorm(channels, 1e-6)
        self.wide, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(nn.functional.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    stages = ConvNext(48), ConvNext(48), nn.Conv2d(48, 96, 2, 2), ConvNext(96), ConvNext(96)
    return nn.Sequential(nn.Conv2d(3, 48, 4, 4), *stages, Head(96))


IMAGE = {"x": real(1, 3, 224, 224)}
BATCHED = {"x": real("batch", 3, 160, 160)}
BATCHES = ({"batch": 2}, {"batch": 1})

NETWORKS = [
    Network(FAMILY, "ResNet", resnet, IMAGE, formats=(FP16, QDQ, QOPERATOR, DYNAMIC)),
    Network(FAMILY, "MobileNetV3", lambda: inverted(nn.Hardswish, nn.Hardsigmoid), IMAGE, formats=(QDQ, QOPERATOR)),
    Network(FAMILY, "EfficientNet", lambda: inverted(nn.SiLU, nn.Sigmoid), BATCHED, BATCHES, formats=(QDQ,)),
    Network(FAMILY, "ShuffleNet", shufflenet, BATCHED, BATCHES, formats=(QOPERATOR,)),
    Network(FAMILY, "Inception", inception, IMAGE),
    Network(FAMILY, "ConvNeXt", convnext, IMAGE),
]
