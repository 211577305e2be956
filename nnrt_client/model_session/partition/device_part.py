"""Parts of a model that run on the device."""

from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from typing import Any

from nnrt_client.model_session.partition.kept_values import KeptValues
from nnrt_client.run.executor import Executor
from nnrt_client.run.future import RunFuture
from nnrt_client.run.result import OutputTooSmall
from nnrt_client.run.run_tensors import NewArray
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_hdi.errors import OperationFailed

# Called once with a part's outputs by name, or with its error, in any thread, perhaps in the one that starts the part.
OnPartDone = Callable[[Mapping[str, Any] | None, BaseException | None], None]


class DevicePart:
    """Part of a model on a device, ready to run."""

    def __init__(self, executor: Executor, resident: Mapping[str, KeptValues[ResidentTensor]]) -> None:
        """Take the part's executor, which the caller closes, and memory for the outputs that only the device reads."""
        self.executor = executor
        self.resident = resident
        self.inputs = [executor.input_desc(index).name for index in range(executor.input_count)]
        self.outputs = [executor.output_desc(index).name for index in range(executor.output_count)]

    def call(
        self,
        values: Mapping[str, Any],
        sizes: Mapping[str, int],
        timeout_ms: int | None,
        targets: Mapping[str, RunTensor[Any]],
        on_behalf_of: str | None,
    ) -> "DeviceCall":
        """Prepare a run on these values, with the sizes of named dimensions and the tensors that it may write to.

        `on_behalf_of` is the name of the identity for which the daemon counts the run, or None.
        """
        given = {name: targets[name] for name in self.outputs if name in targets}
        return DeviceCall(self, [values[name] for name in self.inputs], sizes, timeout_ms, given, on_behalf_of)


class DeviceCall:
    """One run of a part on the device."""

    def __init__(
        self,
        part: DevicePart,
        inputs: list[Any],
        sizes: Mapping[str, int],
        timeout_ms: int | None,
        given: Mapping[str, RunTensor[Any]],
        on_behalf_of: str | None,
    ) -> None:
        """Prepare a run; `given` are tensors of the application that it writes to."""
        self.is_writing = bool(given)
        self._part = part
        self._inputs = inputs
        self._sizes = sizes
        self._timeout_ms = timeout_ms
        self._given = given
        self._on_behalf_of = on_behalf_of
        self._targets: dict[str, ResidentTensor] = {}
        self._future: RunFuture[Any] | None = None
        self._is_stopped = False

    def start(self, done: OnPartDone) -> None:
        """Start the run; raise errors that are found before anything is sent."""
        for name, values in self._part.resident.items():
            if (taken := values.take(self._sizes)) is not None:
                self._targets[name] = taken[0]
        self._start(done)

    def _start(self, done: OnPartDone) -> None:
        outputs: list[Any] | None = None
        if targets := {**self._targets, **self._given}:
            outputs = [targets.get(name) or NewArray() for name in self._part.outputs]
        future = self._part.executor._submit(
            self._inputs, outputs, self._timeout_ms, None, on_behalf_of=self._on_behalf_of
        )
        self._future = future
        if self._is_stopped:
            self.stop()
        future.add_done_callback(lambda _: self._ended(future, done))

    def _ended(self, future: RunFuture[Any], done: OnPartDone) -> None:
        try:
            outputs = future.result()
        except OutputTooSmall as error:
            if not (self._targets or self._given):
                done(None, error)
                return
            # The outputs are larger than the names of their dimensions or the application say. Without targets, each
            # output comes with its shape.
            self._close_targets()
            self._given = {}
            try:
                self._start(done)
            except BaseException as failure:
                done(None, failure)
        except CancelledError:
            done(None, OperationFailed("the run was given up"))
        except BaseException as error:
            done(None, error)
        else:
            done(dict(zip(self._part.outputs, outputs, strict=True)), None)

    def stop(self) -> None:
        """Cancel the run; any thread may call this."""
        self._is_stopped = True
        if self._future is not None:
            self._future.cancel()
        self._close_targets()  # Their memory is freed when no run uses it any more.

    def settle(self) -> None:
        """Give back the memory of the outputs, which are no longer read, for later runs."""
        targets, self._targets = self._targets, {}
        for name, tensor in targets.items():
            self._part.resident[name].give_back(tensor)

    def _close_targets(self) -> None:
        targets, self._targets = self._targets, {}
        for tensor in targets.values():
            tensor.close()
