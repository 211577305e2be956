"""Image-to-image networks."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from families.layers import Attention, conv
from families.network import FP16, IMAGES, QDQ, Network, numbers, real

FAMILY = "images"


class UNet(nn.Module):
    """U-Net: downsample, then upsample to the sizes of the saved maps (Ronneberger et al. 2015)."""

    def __init__(self, channels: tuple[int, ...] = (16, 32, 64, 128)) -> None:
        super().__init__()
        pairs = list(zip((3, *channels), channels, strict=False))
        self.down = nn.ModuleList([nn.Sequential(conv(n, m), conv(m, m)) for n, m in pairs])
        self.up = nn.ModuleList([conv(n + m, n) for n, m in reversed(pairs[1:])])
        self.head = nn.Conv2d(channels[0], 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for index, stage in enumerate(self.down):
            x = stage(functional.max_pool2d(x, 2) if index else x)
            kept.append(x)
        kept.pop()
        for stage in self.up:
            skip = kept.pop()
            x = functional.interpolate(x, size=skip.shape[2:], mode="bilinear", align_corners=False)
            x = stage(torch.cat((x, skip), 1))
        return self.head(x)


class DeepLab(nn.Module):
    """DeepLab head: atrous convolutions with several rates, and the mean of the image (Chen et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 32, 3, 2), conv(32, 64, 3, 2), conv(64, 64, 3, 2))
        self.holes = nn.ModuleList([nn.Conv2d(64, 32, 3, 1, rate, rate) for rate in (1, 3, 6)])
        self.mean = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(64, 32, 1), nn.ReLU())
        self.head = nn.Sequential(conv(128, 64, 1), nn.Conv2d(64, 8, 1))

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[-2:]
        x = self.stem(x)
        mean = functional.interpolate(self.mean(x), size=x.shape[-2:], mode="bilinear", align_corners=False)
        x = self.head(torch.cat([*(hole(x) for hole in self.holes), mean], 1))
        return functional.interpolate(x, size=size, mode="bilinear", align_corners=False).argmax(1)


def super_resolution() -> nn.Module:
    """Build a network that rearranges channels to pixels (Shi et al. 2016)."""
    convs = nn.Conv2d(3, 48, 5, 1, 2), nn.PReLU(48), nn.Conv2d(48, 32, 3, 1, 1), nn.PReLU()
    return nn.Sequential(*convs, nn.Conv2d(32, 27, 3, 1, 1), nn.PixelShuffle(3), nn.Hardtanh(0, 1))


class Style(nn.Module):
    """Style transfer: instance normalization, and reflection padding (Johnson et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()

        def block(inputs: int, outputs: int, size: int, stride: int) -> nn.Module:
            layers = nn.ReflectionPad2d(size // 2), nn.Conv2d(inputs, outputs, size, stride)
            return nn.Sequential(*layers, nn.InstanceNorm2d(outputs, affine=True), nn.ReLU())

        self.down = nn.Sequential(block(3, 16, 9, 1), block(16, 32, 3, 2), block(32, 48, 3, 2))
        self.middle = nn.ModuleList([block(48, 48, 3, 1) for _ in range(2)])
        self.up = nn.ModuleList([block(48, 32, 3, 1), block(32, 16, 3, 1)])
        self.last = nn.Sequential(nn.ReflectionPad2d(4), nn.Conv2d(16, 3, 9))

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(x)
        for layer in self.middle:
            x = x + layer(x)
        for layer in self.up:
            x = layer(functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.last(x)


class Diffusion(nn.Module):
    """Part of a diffusion network: sinusoidal step embedding, GroupNorm, and cross-attention to a text."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.width = width
        self.first, self.last = nn.Conv2d(4, width, 3, 1, 1), nn.Conv2d(width, 4, 3, 1, 1)
        self.step = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.norms = nn.ModuleList([nn.GroupNorm(8, width) for _ in range(3)])
        self.convs = nn.ModuleList([nn.Conv2d(width, width, 3, 1, 1) for _ in range(2)])
        self.attention = Attention(width, 4)

    def forward(self, x: Tensor, timestep: Tensor, text: Tensor) -> Tensor:
        half = self.width // 2
        waves = torch.exp(torch.arange(half) * (-math.log(10000.0) / half)) * timestep[:, None].float()
        step = self.step(torch.cat((waves.sin(), waves.cos()), -1))
        x = self.first(x)
        y = self.convs[0](functional.silu(self.norms[0](x))) + step[:, :, None, None]
        x = x + self.convs[1](functional.silu(self.norms[1](y)))
        n, channels, height, width = x.shape
        tokens = self.norms[2](x).flatten(2).transpose(1, 2)
        x = x + self.attention(tokens, text).transpose(1, 2).reshape(n, channels, height, width)
        return self.last(x)


ANY_IMAGE = {"x": real("batch", 3, "height", "width")}
SIZES = tuple({"batch": 2 - index, **size} for index, size in enumerate(IMAGES))
ODD = ({"batch": 2, "height": 152, "width": 200}, {"batch": 1, "height": 90, "width": 70})
LATENT = {
    "x": real("batch", 4, 16, 16),
    "timestep": numbers("batch", below=1000),
    "text": real("batch", "length", 64),
}

NETWORKS = [
    Network(FAMILY, "U-Net", UNet, ANY_IMAGE, ODD, formats=(FP16, QDQ)),
    Network(FAMILY, "DeepLab", DeepLab, ANY_IMAGE, ODD),
    Network(FAMILY, "super-resolution", super_resolution, ANY_IMAGE, SIZES, formats=(QDQ,)),
    Network(FAMILY, "style transfer", Style, ANY_IMAGE, SIZES),
    Network(FAMILY, "diffusion", Diffusion, LATENT, ({"batch": 2, "length": 8}, {"batch": 1, "length": 5})),
]
