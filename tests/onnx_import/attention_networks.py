"""Networks fused by ONNX Runtime's optimizer for transformers. Needs the extra `nnrt[exporters]`.

`python tests/onnx_import/attention_networks.py` writes them to attention_exports/, so that tests need no torch.
"""

import math
import tempfile
from pathlib import Path

import onnx
import torch
from onnxruntime.transformers.fusion_options import AttentionMaskFormat, FusionOptions
from onnxruntime.transformers.optimizer import optimize_model
from torch import Tensor, nn
from torch.nn import functional

EXPORTS = Path(__file__).with_name("attention_exports")
WIDTH, HEADS = 16, 4
# The optimizer's options for each file.
WANTED = {
    "attention": {"attention_mask_format": AttentionMaskFormat.AttentionMask},
    "attention_with_lengths": {"attention_mask_format": AttentionMaskFormat.MaskIndexEnd},
    "multi_head_attention": {"use_multi_head_attention": True},
}


class Layer(nn.Module):
    """Transformer layer: attention and a two-layer MLP, each with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.context = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.inner, self.outer = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.first_norm, self.second_norm = (nn.LayerNorm(WIDTH, eps=1e-12) for _ in range(2))

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        q, k, v = (self.heads(part(x)) for part in (self.query, self.key, self.value))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(WIDTH // HEADS) + hidden
        seen = torch.matmul(scores.softmax(-1), v).permute(0, 2, 1, 3).contiguous()
        x = self.first_norm(self.context(seen.view(seen.shape[0], seen.shape[1], WIDTH)) + x)
        return self.second_norm(self.outer(functional.gelu(self.inner(x))) + x)

    def heads(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).permute(0, 2, 1, 3)


class Bert(nn.Module):
    """Encoder with BERT's structure."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.types = (nn.Embedding(count, WIDTH) for count in (20, 32, 2))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)[None]
        x = self.norm(self.words(ids) + self.types(types) + self.places(places))
        hidden = (1.0 - mask[:, None, None, :].to(torch.float32)) * -10000.0
        for layer in self.layers:
            x = layer(x, hidden)
        return x


def main() -> None:
    EXPORTS.mkdir(exist_ok=True)
    torch.manual_seed(1)
    ones = torch.ones(2, 6, dtype=torch.int64)
    names = ["ids", "mask", "types"]
    axes = {name: {0: "batch", 1: "steps"} for name in [*names, "y"]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bert.onnx"
        torch.onnx.export(
            Bert().eval(),
            (ones, ones, 0 * ones),
            path,
            input_names=names,
            output_names=["y"],
            dynamic_axes=axes,
            opset_version=14,
            dynamo=False,
        )
        for name, wanted in WANTED.items():
            options = FusionOptions("bert")
            for option, value in wanted.items():
                setattr(options, option, value)
            fused = optimize_model(
                str(path), "bert", num_heads=HEADS, hidden_size=WIDTH, opt_level=0, optimization_options=options
            )
            onnx.save(fused.model, EXPORTS / f"{name}.onnx")


if __name__ == "__main__":
    main()
