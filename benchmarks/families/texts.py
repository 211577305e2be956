"""Transformers for text."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from families.layers import Attention, RmsNorm, mlp
from families.network import DYNAMIC, FP16, QDQ, TEXTS, TORCHSCRIPT, Network, constant, mask, numbers, real

FAMILY = "texts"
WORDS, WIDTH, HEADS = 2000, 256, 4


class BertLayer(nn.Module):
    """Transformer encoder layer: attention and MLP, each followed by a normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(WIDTH, HEADS), mlp(WIDTH, 4 * WIDTH)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH, 1e-12), nn.LayerNorm(WIDTH, 1e-12)])

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = self.norms[0](x + self.attention(x, bias=bias))
        return self.norms[1](x + self.mlp(x))


class Bert(nn.Module):
    """BERT encoder (Devlin et al. 2018); the position embeddings are sliced to the length of the text."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.words, self.types = nn.Embedding(WORDS, WIDTH), nn.Embedding(2, WIDTH)
        self.positions = nn.Embedding(128, WIDTH)
        self.register_buffer("position_ids", torch.arange(128).unsqueeze(0))
        self.norm = nn.LayerNorm(WIDTH, 1e-12)
        self.layers = nn.ModuleList([BertLayer() for _ in range(depth)])
        self.pooler = nn.Linear(WIDTH, WIDTH)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, Tensor]:
        length = input_ids.shape[1]
        position_ids = self.position_ids[:, :length]
        x = self.norm(self.words(input_ids) + self.types(token_type_ids) + self.positions(position_ids))
        bias = (1.0 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for layer in self.layers:
            x = layer(x, bias)
        return x, torch.tanh(self.pooler(x[:, 0]))


class SentenceEncoder(nn.Module):
    """Sentence embedding: normalized mean of the encoder's outputs at unmasked words."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Bert(2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x, _ = self.encoder(input_ids, attention_mask, torch.zeros_like(input_ids))
        weights = attention_mask.unsqueeze(-1).expand(x.shape).float()
        mean = (x * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return functional.normalize(mean, p=2.0, dim=1)


class GptLayer(nn.Module):
    """Decoder layer that appends to the keys and values of earlier steps."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(WIDTH, HEADS), mlp(WIDTH, 4 * WIDTH)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])

    def forward(
        self, x: Tensor, past: tuple[Tensor, Tensor] | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        one, y = self.attention, self.norms[0](x)
        q, k, v = one.split(one.q(y)), one.split(one.k(y)), one.split(one.v(y))
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        x = x + one.attend(q, k, v, bias)
        return x + self.mlp(self.norms[1](x)), k, v


class GptStep(nn.Module):
    """Decoder step with a key-value cache: earlier keys and values are inputs, the extended ones outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(256, WIDTH)
        self.layers = nn.ModuleList([GptLayer() for _ in range(2)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, input_ids: Tensor, k0: Tensor, v0: Tensor, k1: Tensor, v1: Tensor) -> tuple[Tensor, ...]:
        before, length = k0.shape[2], input_ids.shape[1]
        places = torch.arange(before, before + length, device=input_ids.device)
        x = self.words(input_ids) + self.positions(places)
        seen = torch.arange(before + length, device=input_ids.device)[None, :] <= places[:, None]
        bias = torch.where(seen, 0.0, -1e9)
        kept: list[Tensor] = []
        for layer, past in zip(self.layers, ((k0, v0), (k1, v1)), strict=True):
            x, k, v = layer(x, past, bias)
            kept += [k, v]
        return self.norm(x) @ self.words.weight.T, *kept


class LlamaStep(nn.Module):
    """Llama decoder step with rotary positions, grouped queries and a gated MLP."""

    def __init__(self, keys: int = 2) -> None:
        super().__init__()
        self.keys, self.each = keys, WIDTH // HEADS
        self.words = nn.Embedding(WORDS, WIDTH)
        self.q, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = (nn.Linear(WIDTH, keys * self.each, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)
        self.norms = nn.ModuleList([RmsNorm(WIDTH) for _ in range(3)])
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(0, self.each, 2) / self.each))

    def forward(self, input_ids: Tensor, position_ids: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        x = self.words(input_ids)
        batch, length, _ = x.shape
        y = self.norms[0](x)
        q, k, v = (
            part(y).view(batch, length, heads, self.each).transpose(1, 2)
            for part, heads in ((self.q, HEADS), (self.k, self.keys), (self.v, self.keys))
        )
        angles = (position_ids[:, :, None].float() * self.frequencies).repeat(1, 1, 2)[:, None]
        q, k = self._turned(q, angles), self._turned(k, angles)
        keys, values = torch.cat((keys, k), 2), torch.cat((values, v), 2)
        k, v = (self._repeated(part) for part in (keys, values))
        total = keys.shape[2]
        hidden = torch.full((length, total), -1e9).triu(total - length + 1)
        y = ((q @ k.transpose(2, 3) / math.sqrt(self.each) + hidden).softmax(-1) @ v).transpose(1, 2)
        x = x + self.out(y.reshape(batch, length, WIDTH))
        y = self.norms[1](x)
        x = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        return self.norms[2](x) @ self.words.weight.T, keys, values

    def _turned(self, x: Tensor, angles: Tensor) -> Tensor:
        first, second = x[..., : self.each // 2], x[..., self.each // 2 :]
        return x * angles.cos() + torch.cat((-second, first), -1) * angles.sin()

    def _repeated(self, x: Tensor) -> Tensor:
        batch, heads, length, each = x.shape
        times = HEADS // self.keys
        x = x[:, :, None].expand(batch, heads, times, length, each)
        return x.reshape(batch, heads * times, length, each)


class T5Bias(nn.Module):
    """Relative position bias of T5, added to attention scores (Raffel et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, HEADS)

    def forward(self, length: int) -> Tensor:
        places = torch.arange(length)
        apart = places[None, :] - places[:, None]
        far = (-apart).clamp(min=0)
        rough = 16 + (torch.log(far.float() / 16 + 1e-9) / math.log(128 / 16) * 16).long()
        bucket = torch.where(far < 16, far, rough.clamp(max=31))
        return self.table(bucket).permute(2, 0, 1).unsqueeze(0)


class T5Decoder(nn.Module):
    """T5 decoder: self-attention and cross-attention with relative position biases."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.bias = nn.Embedding(WORDS, WIDTH), T5Bias()
        self.own, self.other = Attention(WIDTH, HEADS), Attention(WIDTH, HEADS)
        self.mlp = mlp(WIDTH, 2 * WIDTH, nn.ReLU)
        self.norms = nn.ModuleList([RmsNorm(WIDTH) for _ in range(4)])

    def forward(self, decoder_input_ids: Tensor, encoder_hidden_states: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.words(decoder_input_ids)
        length = decoder_input_ids.shape[1]
        future = torch.full((length, length), -1e9).triu(1)
        x = x + self.own(self.norms[0](x), bias=self.bias(length) + future)
        hidden = (1.0 - attention_mask[:, None, None, :].float()) * -1e9
        x = x + self.other(self.norms[1](x), encoder_hidden_states, hidden)
        x = x + self.mlp(self.norms[2](x))
        return self.norms[3](x) @ self.words.weight.T


class Clip(nn.Module):
    """CLIP text encoder: it returns the vector at the largest token id, which ends the text."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Parameter(torch.randn(128, WIDTH) / 10)
        self.layers = nn.ModuleList([GptLayer() for _ in range(2)])
        self.norm, self.projection = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        batch, length = input_ids.shape
        x = self.words(input_ids) + self.positions[:length]
        bias = torch.full((length, length), float("-inf")).triu(1)
        for layer in self.layers:
            x, _, _ = layer(x, None, bias)
        x = self.norm(x)[torch.arange(batch), input_ids.argmax(-1)]
        return functional.normalize(self.projection(x), dim=-1)


def generated() -> nn.Module:
    return torch.jit.script(Greedy())


class Greedy(nn.Module):
    """Greedy decoding in a loop within the graph, for at most `limit` steps."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell, self.head = nn.Embedding(100, 32), nn.Linear(64, 32), nn.Linear(32, 100)

    def forward(self, state: Tensor, limit: Tensor) -> Tensor:
        word = torch.zeros(1, dtype=torch.int64)
        written = torch.zeros(1, dtype=torch.int64)
        for _ in range(int(limit)):
            state = torch.tanh(self.cell(torch.cat((self.words(word), state), 1)))
            word = self.head(state).argmax(1)
            written = torch.cat((written, word))
        return written


IDS = numbers("batch", "length", below=WORDS)
MASK = mask("batch", "length")
CACHE = real("batch", HEADS, "past", WIDTH // HEADS)
STEPS = ({"batch": 2, "length": 3, "past": 20}, {"batch": 1, "length": 1, "past": 33})
KEYS = real("batch", 2, "past", WIDTH // HEADS)

NETWORKS = [
    Network(
        FAMILY,
        "BERT",
        Bert,
        {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": numbers("batch", "length", below=2)},
        TEXTS,
        formats=(FP16, QDQ, DYNAMIC),
        outputs=("last_hidden_state", "pooler_output"),
    ),
    Network(
        FAMILY,
        "sentence encoder",
        SentenceEncoder,
        {"input_ids": IDS, "attention_mask": MASK},
        TEXTS,
        formats=(DYNAMIC,),
    ),
    Network(
        FAMILY,
        "GPT, a step with its cache",
        GptStep,
        {"input_ids": IDS, "k0": CACHE, "v0": CACHE, "k1": CACHE, "v1": CACHE},
        STEPS,
        formats=(FP16, DYNAMIC),
        outputs=("logits", "k0_out", "v0_out", "k1_out", "v1_out"),
    ),
    Network(
        FAMILY,
        "Llama, a step with its cache",
        LlamaStep,
        {"input_ids": IDS, "position_ids": numbers("batch", "length", below=64), "keys": KEYS, "values": KEYS},
        STEPS,
        formats=(FP16,),
        outputs=("logits", "keys_out", "values_out"),
    ),
    Network(
        FAMILY,
        "T5, decoder",
        T5Decoder,
        {
            "decoder_input_ids": numbers("batch", "written", below=WORDS),
            "encoder_hidden_states": real("batch", "length", WIDTH),
            "attention_mask": MASK,
        },
        ({"batch": 2, "length": 32, "written": 7}, {"batch": 1, "length": 20, "written": 1}),
    ),
    Network(FAMILY, "CLIP, text", Clip, {"input_ids": IDS}, TEXTS),
    Network(
        FAMILY,
        "greedy loop",
        generated,
        {"state": real(1, 32), "limit": constant(6)},
        exporters=(TORCHSCRIPT,),
    ),
]
