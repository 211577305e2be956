"""Model for `map_batches` of Ray Data."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.model_session.load import load
from nnrt_client.model_session.model_session import ModelSession
from nnrt_client.model_session.opened_model import Source
from nnrt_client.ray.device_process import DeviceProcess
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import InvalidParameter, UnavailableDevice

Batch = dict[str, NDArray[Any]]
# Most attempts to run a batch if daemons die during it.
_ATTEMPTS = 3


class Predictor(Closable):
    """Callable for `map_batches` of Ray Data, which runs a model on batches and returns its outputs for each row.

    A batch is a dict of numpy arrays. Each actor of `map_batches` makes a predictor, which starts a daemon on its node,
    so the actors must reserve a device (`resources={"nnrt_device": 1}`). With `device`, it uses all devices behind this
    name, such as "ray:///cameras", as a pool. After the death of a daemon it loads the model again and repeats the
    batch.

    Args:
        model: Model as for `load`.
        device: Name or address of devices; without it the predictor starts a daemon.
        serve: Arguments of that daemon.
        columns: Names of the batch's columns by input, for inputs whose column has another name.
        keep: Columns of the batch that the result has besides the outputs.
        **of_load: Other arguments of `load`.

    Raises:
        NnrtError: The errors of `load`.
    """

    def __init__(
        self,
        model: Source,
        device: str | None = None,
        *,
        serve: Sequence[str] = ("--backend", "onnxruntime"),
        columns: Mapping[str, str] | None = None,
        keep: Sequence[str] = (),
        **of_load: Any,
    ) -> None:
        self._model = model
        self._device = device
        self._serve = serve
        self._columns = dict(columns or {})
        self._keep = tuple(keep)
        self._of_load = of_load
        self._resources = ExitStack()
        # None if a device was given.
        self.daemon: DeviceProcess | None = None
        self._session = self._load()

    def __call__(self, batch: Batch) -> Batch:
        """Run a batch, and return its outputs.

        Raises:
            InvalidParameter: A column is missing, or doesn't fit its input.
            NnrtError: The errors of a run.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._run(batch)
            except UnavailableDevice:
                self.close()
                self._session = self._load()
        return self._run(batch)

    def close(self) -> None:
        """End the session, and the predictor's own daemon. Calling it again does nothing."""
        self._resources.close()

    def _load(self) -> ModelSession:
        with ExitStack() as stack:
            device = self._device
            if device is None:
                self.daemon = stack.enter_context(DeviceProcess(self._serve))
                device = self.daemon.address
            session = stack.enter_context(load(self._model, [device], **self._of_load))
            self._resources = stack.pop_all()
        return session

    def _run(self, batch: Batch) -> Batch:
        inputs = {name: self._column(batch, name) for name in self._input_names()}
        rows = len(next(iter(inputs.values())))
        size = self._count_rows() or max(rows, 1)
        pieces = [
            {name: _piece(column, start, size) for name, column in inputs.items()}
            for start in range(0, max(rows, 1), size)
        ]
        results = [started.result() for started in [self._session.submit(piece) for piece in pieces]]
        outputs = {name: _join(name, [result[name] for result in results], size, rows) for name in results[0]}
        return {name: batch[name] for name in self._keep} | outputs

    def _input_names(self) -> list[str]:
        return [desc.name for desc in self._session.inputs]

    def _count_rows(self) -> int:
        """Return how many rows the model takes in a run, or 0 if it takes any number."""
        sizes = {(desc.shape or (1,))[0] for desc in self._session.inputs}
        if len(sizes) > 1:
            raise InvalidParameter(
                f"the inputs have {sorted(sizes)} rows; a batch has as many for each", place="Predictor"
            )
        return max(sizes.pop(), 0)

    def _column(self, batch: Batch, name: str) -> NDArray[Any]:
        column = self._columns.get(name, name)
        if column not in batch:
            raise InvalidParameter(
                f"the batch has the columns {sorted(batch)}, and none is {column!r}; say by `columns` which is the"
                f" input {name!r}",
                place="Predictor",
            )
        return batch[column]


def _piece(column: NDArray[Any], start: int, size: int) -> NDArray[Any]:
    """Return up to `size` rows of a column, from `start`, padded with rows of zeros to `size`."""
    rows = column[start : start + size]
    missing = size - len(rows)
    return np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)]) if missing else rows


def _join(name: str, pieces: Sequence[NDArray[Any]], size: int, rows: int) -> NDArray[Any]:
    """Join an output of all pieces, and drop the padding; raise InvalidParameter unless it has a row per input row."""
    for piece in pieces:
        if piece.ndim == 0 or len(piece) != size:
            raise InvalidParameter(
                f"the output {name!r} has the shape {list(piece.shape)} for {size} rows; Ray Data needs one for each",
                place="Predictor",
            )
    return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces))[:rows]
