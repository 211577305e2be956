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
# How often the same batch is run if a daemon dies over it.
_ATTEMPTS = 3


class Predictor(Closable):
    """Runner of batches of Ray Data, dicts of numpy arrays, on a device: each row gets the model's outputs for it.

    Ray makes one in each actor of `map_batches`. It has a daemon of its own on its node, so the actors take the
    resources that stand for a device (`resources={"nnrt_device": 1}`). Or it uses all devices behind a name, such as
    "ray:///cameras", as a pool. A daemon that dies is replaced, and the batch is run again.

    Args:
        model: Model as for `load`.
        device: Name or address of devices; without it the predictor starts a daemon.
        serve: Arguments of that daemon.
        columns: Columns for inputs, by input, where they have other names.
        keep: Columns that are passed on beside the outputs.
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
            InvalidParameter: The columns don't fit.
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
        size = self._rows_of_a_run() or max(rows, 1)
        pieces = [
            {name: _piece(column, start, size) for name, column in inputs.items()}
            for start in range(0, max(rows, 1), size)
        ]
        results = [started.result() for started in [self._session.submit(piece) for piece in pieces]]
        outputs = {name: _join(name, [result[name] for result in results], size, rows) for name in results[0]}
        return {name: batch[name] for name in self._keep} | outputs

    def _input_names(self) -> list[str]:
        return [desc.name for desc in self._session.inputs]

    def _rows_of_a_run(self) -> int:
        """Return how many rows the model takes; 0 stands for any number."""
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
    """Return rows of a column, followed by rows of zeros up to the number that the model takes."""
    rows = column[start : start + size]
    missing = size - len(rows)
    return np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)]) if missing else rows


def _join(name: str, pieces: Sequence[NDArray[Any]], size: int, rows: int) -> NDArray[Any]:
    """Join the outputs of pieces, and cut them to the batch's rows; raise InvalidParameter for other shapes."""
    for piece in pieces:
        if piece.ndim == 0 or len(piece) != size:
            raise InvalidParameter(
                f"the output {name!r} has the shape {list(piece.shape)} for {size} rows; Ray Data needs one for each",
                place="Predictor",
            )
    return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces))[:rows]
