"""Classification extension: the largest elements of an output, as strings, in place of the elements."""

from collections.abc import Sequence

import numpy as np

from nnrt_client.serving.datatypes import Array, object_array
from nnrt_hdi.errors import InvalidParameter

# Most strings of a tensor.
_MOST_STRINGS = 1 << 20


def classify(scores: Array, classes: int, labels: Sequence[str], place: str) -> Array:
    """Return the `classes` largest elements as strings `VALUE:INDEX` or `VALUE:INDEX:LABEL`, largest first.

    Of a tensor with two or more dimensions, the first is the batch, and each row is classified alone.

    Raises:
        InvalidParameter: The output has no numbers, or `classes` is below 1, or too many.
    """
    if scores.dtype.kind not in "iuf" or classes < 1:
        raise InvalidParameter(
            f"{classes} classes of {scores.dtype} are wanted; use 1 or more, of numbers", place=place
        )
    rows = scores.reshape(len(scores), -1) if scores.ndim > 1 else scores.reshape(1, -1)
    count = min(classes, rows.shape[1])
    if len(rows) * count > _MOST_STRINGS:
        raise InvalidParameter(
            f"{len(rows)} times {count} classes are wanted; use at most {_MOST_STRINGS}", place=place
        )
    # Stable, so that of equal elements the first wins.
    order = np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :count]
    texts = [
        _text(row[index], int(index), labels) for row, indices in zip(rows, order, strict=True) for index in indices
    ]
    return object_array(texts).reshape((len(rows), count) if scores.ndim > 1 else (count,))


def _text(value: "np.generic", index: int, labels: Sequence[str]) -> bytes:
    number = f"{value:f}" if value.dtype.kind == "f" else str(value)
    label = f":{labels[index]}" if index < len(labels) else ""
    return f"{number}:{index}{label}".encode()
