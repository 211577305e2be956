"""A model for `map_batches` of Ray Data."""

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
# How often the same batch is run where a daemon dies over it.
_ATTEMPTS = 3


class Predictor(Closable):
    """Runs batches of Ray Data, dicts of numpy arrays, on a device: each row gets what the model makes of it.

    Ray makes one in each actor of `map_batches`. It has a daemon of its own on its node, so the actors take the
    resources that a device stands for (`resources={"nnrt_device": 1}`); or it uses all devices behind a name, such as
    "ray:///cameras", as a pool. A daemon that dies is replaced, and the batch run again.
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
        """`columns` say which column an input is, where that has another name; `keep` are columns that go on beside the
        outputs. `serve` are arguments of the daemon, all else is `load`'s. Raises what `load` raises."""
        self._model = model
        self._device = device
        self._serve = serve
        self._columns = dict(columns or {})
        self._keep = tuple(keep)
        self._of_load = of_load
        self._resources = ExitStack()
        # Its own; None where a device was given.
        self.daemon: DeviceProcess | None = None
        self._session = self._loaded()

    def __call__(self, batch: Batch) -> Batch:
        """The outputs of a batch. Raises InvalidParameter for columns that don't fit, and what a run raises."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._run(batch)
            except UnavailableDevice:
                self.close()
                self._session = self._loaded()
        return self._run(batch)

    def close(self) -> None:
        """End the session, and the daemon if it is its own. Idempotent."""
        self._resources.close()

    def _loaded(self) -> ModelSession:
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
        outputs = {name: _joined(name, [result[name] for result in results], size, rows) for name in results[0]}
        return {name: batch[name] for name in self._keep} | outputs

    def _input_names(self) -> list[str]:
        return [desc.name for desc in self._session.inputs]

    def _rows_of_a_run(self) -> int:
        """How many rows the model takes; 0 for any number."""
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
    """Rows of a column; behind its end those of zeros, so that there are as many as the model takes."""
    rows = column[start : start + size]
    missing = size - len(rows)
    return np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)]) if missing else rows


def _joined(name: str, pieces: Sequence[NDArray[Any]], size: int, rows: int) -> NDArray[Any]:
    """The rows that there were."""
    for piece in pieces:
        if piece.ndim == 0 or len(piece) != size:
            raise InvalidParameter(
                f"the output {name!r} has the shape {list(piece.shape)} for {size} rows; Ray Data needs one for each",
                place="Predictor",
            )
    return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces))[:rows]
