"""Vision transformers."""

import torch
from torch import Tensor, nn

from families.layers import Attention, mlp
from families.network import DYNAMIC, FP16, QDQ, Network, real

FAMILY = "vision transformers"


class Block(nn.Module):
    """Transformer block: attention and MLP, each preceded by a normalization."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention, self.mlp = Attention(width, heads), mlp(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Vit(nn.Module):
    """ViT: one token per patch and one for the class (Dosovitskiy et al. 2020)."""

    def __init__(self, width: int = 192, patch: int = 16, patches: int = 64, depth: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, patches + 1, width))
        self.blocks = nn.Sequential(*(Block(width, 3) for _ in range(depth)), nn.LayerNorm(width))
        self.head = nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.position
        return self.head(self.blocks(x)[:, 0])


class Swin(nn.Module):
    """Swin: attention within windows, shifted in every other block (Liu et al. 2021)."""

    def __init__(self, width: int = 64, window: int = 8) -> None:
        super().__init__()
        self.window = window
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.ModuleList([Block(width, 4) for _ in range(4)])
        self.merge = nn.Linear(4 * width, 2 * width)
        self.last = Block(2 * width, 4)
        self.head = nn.Linear(2 * width, 100)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).permute(0, 2, 3, 1)
        for index, block in enumerate(self.blocks):
            shift = self.window // 2 * (index % 2)
            x = torch.roll(x, (-shift, -shift), (1, 2)) if shift else x
            x = self._joined(block(self._windows(x)), x.shape)
            x = torch.roll(x, (shift, shift), (1, 2)) if shift else x
        x = torch.cat((x[:, ::2, ::2], x[:, 1::2, ::2], x[:, ::2, 1::2], x[:, 1::2, 1::2]), -1)
        return self.head(self.last(self.merge(x).flatten(1, 2)).mean(1))

    def _windows(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        x = x.view(n, h // self.window, self.window, w // self.window, self.window, c)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, self.window * self.window, c)

    def _joined(self, x: Tensor, shape: torch.Size) -> Tensor:
        n, h, w, c = shape
        x = x.view(n, h // self.window, w // self.window, self.window, self.window, c)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)


IMAGE = {"x": real(1, 3, 128, 128)}
BATCHED = {"x": real("batch", 3, 128, 128)}
BATCHES = ({"batch": 2}, {"batch": 1})

NETWORKS = [
    Network(FAMILY, "ViT", Vit, BATCHED, BATCHES, formats=(FP16, QDQ, DYNAMIC)),
    Network(FAMILY, "Swin", Swin, IMAGE),
]
