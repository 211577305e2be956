"""Opening of a program's sessions. A separate process first tries to open each, unless that was done before."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nnrt_onnx_lowering.value import AnyArray
from onnxruntime import GraphOptimizationLevel

from nnrt_backend_onnxruntime.model import nnrt_error
from nnrt_backend_onnxruntime.programs.trials import Crashed, Refused, Trial, Trials
from nnrt_backend_onnxruntime.providers import ProviderDevice
from nnrt_backend_onnxruntime.session import open_session, session_options
from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import OperationFailed, OutOfMemory
from nnrt_hdi.tensor import Array

TryRun = Callable[[Mapping[str, Array], Cancellation], None]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Opening(Closable):
    """Opener of the sessions of one program. `close` ends its trial."""

    weights: Mapping[str, AnyArray]
    device: ProviderDevice
    config: ModelConfig
    # None to skip all trials.
    trials: Trials | None
    waiting: Callable[[], None]
    is_optimized: bool = True
    # Whether the opening has been tried before.
    is_tried: bool = False
    # Functions that open the session of the latest model again, and that try a run of it (None to skip trials).
    reopen: Callable[..., Any] = field(init=False)
    try_run: TryRun | None = field(default=None, init=False)
    _current: tuple[bytes, Mapping[str, str], Trial] | None = field(default=None, init=False)

    def begin(self, model: bytes, entries: Mapping[str, str]) -> None:
        """Start the trial of a model that will probably be opened, with these entries of the configuration."""
        self.close()
        if self.trials is not None and not self.is_tried:
            self._current = model, entries, self._begin_trial(self.trials, model, entries)

    def session(self, model: bytes, entries: Mapping[str, str]) -> Any:
        """Open the session of a model.

        If only the optimizations crash, the session is opened without them.

        Raises:
            OperationFailed: ONNX Runtime refuses the model.
            Unsupported: ONNX Runtime crashes on the model, or needs too much time or memory.
        """
        try:
            self._try(model, entries)
        except Crashed as error:
            if not self.is_optimized:
                raise
            self.is_optimized = False
            self._try(model, entries)
            _log.warning("a program runs without optimizations, because with them %s", error.message)
        self.reopen = partial(self._open, model, entries)
        if self.trials is not None:
            self.try_run = partial(self._try_run, self.trials, model, entries)
        return self.reopen()

    def _begin_trial(
        self,
        trials: Trials,
        model: bytes,
        entries: Mapping[str, str],
        inputs: Mapping[str, Array] | None = None,
    ) -> Trial:
        try:
            return trials.begin(
                model, self.weights, self.device, self.config, entries, is_optimized=self.is_optimized, inputs=inputs
            )
        except OSError as error:
            raise OutOfMemory(f"the daemon's host has nothing left to try it: {error.strerror}; try later") from error

    def _open(self, model: bytes, entries: Mapping[str, str], profile: str = "") -> Any:
        options = session_options(self.device, self.config, entries, profile)
        if not self.is_optimized:
            options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
        return open_session(model, self.weights, options, self.device, self.config.extensions)

    def _try(self, model: bytes, entries: Mapping[str, str]) -> None:
        if self._current is None or self._current[:2] != (model, entries):
            self.begin(model, entries)
        try:
            if self._current is not None:
                self._current[2].require_success(self.waiting)
        finally:
            self.close()

    def _try_run(
        self,
        trials: Trials,
        model: bytes,
        entries: Mapping[str, str],
        inputs: Mapping[str, Array],
        cancellation: Cancellation,
    ) -> None:
        """Try a run. Raises Unsupported if ONNX Runtime crashes, and the run's error if it only fails."""
        with self._begin_trial(trials, model, entries, inputs) as trial:
            take_back = cancellation.on_cancel(trial.give_up)
            try:
                trial.require_success(cancellation.check, cancellation.deadline)
            except Refused as error:
                raise nnrt_error(error.kind, error.text) from error
            except OperationFailed:
                cancellation.check()  # The cancellation may have ended the trial.
                raise
            finally:
                take_back()

    def close(self) -> None:
        if self._current is not None:
            self._current[2].close()
        self._current = None
