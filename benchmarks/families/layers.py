"""Layers that several families share."""

import torch
from torch import Tensor, nn
from torch.nn import functional


def conv(
    inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1, act: type[nn.Module] | None = nn.ReLU
) -> nn.Sequential:
    """Build a size-preserving convolution with batch normalization and activation."""
    layers = [nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([act()] if act else []))


class SqueezeExcite(nn.Module):
    """Squeeze and excitation: channel weights from the channels' means."""

    def __init__(self, channels: int, act: type[nn.Module] = nn.ReLU, gate: type[nn.Module] = nn.Sigmoid) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, channels // 4, 1),
            act(),
            nn.Conv2d(channels // 4, channels, 1),
            gate(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


class Residual(nn.Module):
    """x + f(x), or f(x) if the shapes differ."""

    def __init__(self, *layers: nn.Module, adds: bool = True, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body = nn.Sequential(*layers)
        self.adds = adds
        self.shortcut = shortcut or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.body(x) if self.adds else self.body(x)


class Head(nn.Module):
    """Classifier on the mean of a feature map."""

    def __init__(self, channels: int, classes: int = 100) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Attention(nn.Module):
    """Multi-head attention made of matrix products. `bias` is added to the scores."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x: Tensor, memory: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        memory = x if memory is None else memory
        q, k, v = self.split(self.q(x)), self.split(self.k(memory)), self.split(self.v(memory))
        return self.attend(q, k, v, bias)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if bias is not None:
            scores = scores + bias
        y = (scores.softmax(-1) @ v).transpose(1, 2)
        return self.out(y.reshape(y.shape[0], y.shape[1], -1))


class RmsNorm(nn.Module):
    """RMSNorm: x / sqrt(mean(x^2)), with weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def mlp(width: int, inner: int, act: type[nn.Module] = nn.GELU) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, inner), act(), nn.Linear(inner, width))
