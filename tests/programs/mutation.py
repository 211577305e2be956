"""Random changes of ONNX models: a field somewhere is removed, repeated, or gets another value."""

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import onnx

_WHOLE = (0, 1, -1, 2, 3, 7, 255, 1 << 31, -(1 << 31), 1 << 62, 1000)
_REAL = (0.0, -1.0, 1e30, float("nan"), float("inf"))
_TEXTS = """
    x y w a ai.onnx.ml com.microsoft Add Attention BeamSearch Col2Im Compress Concat Conv CropAndResize DFT Einsum
    EmbedLayerNormalization FusedMatMul GRU Gather GridSample GroupQueryAttention If LSTM Loop MatMul MatMulNBits
    MaxUnpool MoE MultiHeadAttention NGramRepeatBlock NonMaxSuppression OneHot Pad QAttention QLinearConv Reshape Resize
    RoiAlign STFT Scan ScatterND SequenceAt Slice Split StringNormalizer TfIdfVectorizer Tokenizer TopK
    TreeEnsembleRegressor Unique WordConvEmbedding
"""


def mutate(rng: Random, model: onnx.ModelProto) -> None:
    """Change one random field."""
    message, field = rng.choice(list(_fields(model)))
    # A value that the field can't hold changes nothing.
    with suppress(ValueError, TypeError):
        if field.is_repeated:
            _change_entry(rng, getattr(message, field.name), field, model)
        elif field.message_type:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, _other(rng, getattr(message, field.name), model))


def _fields(message: Any) -> Iterator[tuple[Any, Any]]:
    """Yield all set fields of all messages."""
    for field, value in message.ListFields():
        yield message, field
        if field.message_type:
            for inner in value if field.is_repeated else [value]:
                yield from _fields(inner)


def _change_entry(rng: Random, entries: Any, field: Any, model: onnx.ModelProto) -> None:
    at = rng.randrange(len(entries))
    match rng.choice(["leave out", "repeat", "change"]):
        case "leave out":
            del entries[at]
        case "repeat" if field.message_type:
            entries.add().CopyFrom(entries[at])
        case "repeat":
            entries.append(entries[at])
        case _ if not field.message_type:
            entries[at] = _other(rng, entries[at], model)


def _other(rng: Random, value: Any, model: onnx.ModelProto) -> Any:
    if isinstance(value, int):
        return rng.choice((*_WHOLE, value + 1, value - 1))
    if isinstance(value, float):
        return rng.choice((*_REAL, value * 2))
    if isinstance(value, bytes):
        return value[: rng.randrange(len(value) + 1)] + rng.randbytes(rng.randrange(4))
    names = [name for node in model.graph.node for name in (*node.input, *node.output)]
    return rng.choice(["", *_TEXTS.split(), *names])
