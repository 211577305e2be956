"""A model, ready to run: everything between a file and its numbers in one step.

with load("model.onnx", device="127.0.0.1:50051") as session:
    outputs = session.run({"x": array})
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from nnrt_client.build.build_task import BuildReport, Progress
from nnrt_client.build.cache import CacheDirectory
from nnrt_client.build.compilation import Compilation
from nnrt_client.build.options import Options
from nnrt_client.model.model import Model
from nnrt_client.model_session.opened_model import OpenedModel, Shapes, Source, open_model, with_shapes
from nnrt_client.run.executor import Executor
from nnrt_client.run.signature import Inputs, listed
from nnrt_client.session.device import Device
from nnrt_client.session.runtime import Runtime
from nnrt_client.settings import Settings, addresses_to_ask_for
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.enums import PerformanceMode, Priority
from nnrt_hdi.errors import (
    InvalidFile,
    InvalidParameter,
    OperationForbidden,
    SaveCacheFailed,
)
from nnrt_hdi.tensor import NUMPY_DTYPES

_log = logging.getLogger(__name__)

NamedOutputs = dict[str, NDArray[Any]]

# What of a cache's name the options decide: enough that two never meet.
_OPTIONS_DIGITS = 16
_VERSION = 0


def load(
    model: Source | Model,
    device: str | int | Device | None = None,
    *,
    shapes: Shapes | None = None,
    cache: bool | str | os.PathLike[str] = True,
    progress: Progress | None = None,
    runtime: Runtime | None = None,
    settings: Settings | None = None,
    float16: bool = False,
    performance_mode: PerformanceMode = PerformanceMode.NONE,
    priority: Priority = Priority.NONE,
    extensions: Mapping[str, bytes] | None = None,
) -> "ModelSession":
    """Have a device ready to run a model: an ONNX file, a saved model or an offline one, its bytes, or a Model.

    The device is given by its address, name or id, or as a Device; without, it is the first of NNRT_DEVICES that
    answers. `shapes` settle unknown dimensions of inputs, by name. What was compiled is kept in the directory `cache`,
    or in the user's (see `cache_directory`), where the device can restore it, and found there the next time; what is
    damaged or outdated there is built again. `progress` is called as by `Compilation.build`. The session makes a
    runtime with these `settings`, unless it is given one, or a Device. Raises InvalidPath and InvalidFile for files,
    Unsupported for an ONNX model that can't be imported, InvalidParameter for `shapes` that don't fit, OperationFailed
    where there is no such device, and what `Compilation.build` raises.
    """
    options = Options(float16 or None, performance_mode or None, priority or None, dict(extensions or {}))
    opened = _opened(model, shapes)
    return open_session(opened, device, options, cache=cache, progress=progress, runtime=runtime, settings=settings)


def open_session(
    opened: Model | OpenedModel,
    device: str | int | Device | None,
    options: Options,
    *,
    cache: bool | str | os.PathLike[str] = True,
    progress: Progress | None = None,
    runtime: Runtime | None = None,
    settings: Settings | None = None,
) -> "ModelSession":
    """Have a device ready to run a model that is in memory already; see `load`."""
    with ExitStack() as stack:
        if not isinstance(device, Device):
            if runtime is None:
                runtime = stack.enter_context(Runtime(addresses_to_ask_for(device), settings))
            device = runtime.device(0 if device is None else device)
        compilation = stack.enter_context(_built(opened, device, options, _directory(cache), progress))
        executor = stack.enter_context(Executor(compilation))
        assert compilation.report is not None
        return ModelSession(executor, device, compilation.report, stack.pop_all())


class ModelSession:
    """A model on a device, ready to run from any number of threads. Made by `load`.

    Its inputs and outputs go by name. When the daemon dies the session is over: load the model again, there or on
    another device.
    """

    def __init__(self, executor: Executor, device: Device, report: BuildReport, resources: ExitStack) -> None:
        """Takes over `resources`, all that is to be closed with the session."""
        self.device = device
        self.report = report
        self._executor = executor
        self._resources = resources
        self._is_open = True
        self._inputs = _named("input", [executor.input_desc(index) for index in range(executor.input_count)])
        self._outputs = _named("output", [executor.output_desc(index) for index in range(executor.output_count)])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ModelSession on {self.device.name}: {', '.join(self._inputs)} -> {', '.join(self._outputs)}>"

    @property
    def inputs(self) -> tuple[TensorDesc, ...]:
        """Inputs of a run: names, data types, shapes (-1 where a dimension varies) and formats; the caller's own.

        One without a name of its own is called `input0`, `input1`, ... here.
        """
        return tuple(desc.copy() for desc in self._inputs.values())

    @property
    def outputs(self) -> tuple[TensorDesc, ...]:
        """Outputs of a run, as for `inputs`; one without a name is called `output0`, ..."""
        return tuple(desc.copy() for desc in self._outputs.values())

    def run(self, inputs: Inputs, *, timeout_ms: int | None = None) -> NamedOutputs:
        """Run, and wait for the outputs by name, which are read-only arrays.

        Inputs go by name, or in the model's order. Arrays must have the model's data types; lists and numbers are
        converted. Raises what `Executor.run_sync` raises; UnavailableDevice when the daemon has died.
        """
        self._require_open()
        return self._by_name(self._executor.run_sync(self._in_order(inputs), timeout_ms=timeout_ms))

    def submit(self, inputs: Inputs, *, timeout_ms: int | None = None) -> "Future[NamedOutputs]":
        """Start a run; what `run` returns and raises is the result of the future. See `Executor.submit`."""
        self._require_open()
        return self._executor._submit(self._in_order(inputs), None, timeout_ms, self._by_name)

    def close(self) -> None:
        """End the runs in flight and free the model, on the device too. Idempotent."""
        self._is_open = False
        self._resources.close()

    def _in_order(self, inputs: Inputs) -> list[Any]:
        """The inputs in the model's order. Numbers that are no arrays yet get its data types."""
        if not isinstance(inputs, Mapping):
            given = listed(inputs)
        elif set(inputs) == set(self._inputs):
            given = [inputs[name] for name in self._inputs]
        else:
            raise InvalidParameter(f"inputs are named {sorted(inputs)}; the model's are {sorted(self._inputs)}")
        # How many there must be is for the executor to say.
        descs = (*self._inputs.values(), *[None] * len(given))
        return [_array(desc, one) for desc, one in zip(descs, given, strict=False)]

    def _by_name(self, outputs: Sequence[NDArray[Any]]) -> NamedOutputs:
        return dict(zip(self._outputs, outputs, strict=True))

    def _require_open(self) -> None:
        if not self._is_open:
            raise OperationForbidden("the session is closed; load the model again")


def cache_directory() -> Path:
    """Give the directory of compiled models: `nnrt/models` in XDG_CACHE_HOME, which is ~/.cache if it is not set."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification has relative paths ignored.
    return (given if given.is_absolute() else Path.home() / ".cache") / "nnrt" / "models"


# ---- from a model to a compilation


def _opened(model: Source | Model, shapes: Shapes | None) -> Model | OpenedModel:
    if isinstance(model, Model):
        return Model._from_graph(with_shapes(model._graph, shapes)) if shapes else model
    return open_model(model, shapes)


def _directory(cache: bool | str | os.PathLike[str]) -> Path | None:
    if isinstance(cache, bool):
        return cache_directory() if cache else None
    return Path(cache)


def _built(
    opened: Model | OpenedModel, device: Device, options: Options, root: Path | None, progress: Progress | None
) -> Compilation:
    """The compilation, built; with its cache below a directory, where it has one."""
    model = opened if isinstance(opened, Model) else opened.model
    if model is None:
        assert isinstance(opened, OpenedModel)
        return _build(Compilation.from_offline_buffer(opened.data, device), options, None, progress)
    directory = None
    if root is not None and device.capabilities.model_cache:
        directory = _made(root / _cache_name(model, options))
    try:
        return _build(Compilation(model, device), options, directory, progress)
    except InvalidFile as error:
        # The directory is the session's own, so nobody loses anything but time.
        file = CacheDirectory(directory, _VERSION).file(device) if directory else None
        if file is None or not file.exists():
            raise
        _log.warning("the model is built again and its cache replaced: %s", error)
        with suppress(OSError):  # The next build says what is wrong then.
            file.unlink()
        return _build(Compilation(model, device), options, directory, progress)


def _build(
    compilation: Compilation, options: Options, directory: Path | None, progress: Progress | None
) -> Compilation:
    with ExitStack() as stack:
        stack.enter_context(compilation)
        compilation._set_options(options)
        if directory:
            compilation.set_cache(directory, _VERSION)
        try:
            compilation.build(progress)
        except SaveCacheFailed as error:  # It is built all the same.
            _log.warning("%s", error)
        stack.pop_all()
    return compilation


def _cache_name(model: Model, options: Options) -> str:
    """Of the model, and of the options it is compiled with: those of a cache can't be changed."""
    name = model.digest.hex()
    extensions = {key: value.hex() for key, value in options.extensions.items()}
    chosen = [bool(options.float16), int(options.mode or 0), extensions]
    if not any(chosen):
        return name
    return f"{name}-{hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:_OPTIONS_DIGITS]}"


def _made(directory: Path) -> Path | None:
    """The directory, made where it isn't there; None where it can't be."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        _log.warning("compiled models are not kept: %s: %s", directory, error.strerror)
        return None
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        _log.warning("compiled models are not kept: %s can't be read and written", directory)
        return None
    return directory


# ---- names


def distinct_names(what: str, names: Sequence[str]) -> list[str]:
    """Names by which inputs or outputs go: one that has none, or that of an earlier one, is given one."""
    taken = set(names)
    distinct: dict[str, None] = {}
    for index, name in enumerate(names):
        if not name or name in distinct:
            name = f"{name}#{index}" if name else f"{what}{index}"
            while name in taken:
                name += "#"
            taken.add(name)
        distinct[name] = None
    return list(distinct)


def _named(what: str, descs: Sequence[TensorDesc]) -> dict[str, TensorDesc]:
    for desc, name in zip(descs, distinct_names(what, [desc.name for desc in descs]), strict=True):
        desc.name = name
    return {desc.name: desc for desc in descs}


def _array(desc: TensorDesc | None, given: ArrayLike | RunTensor[Any]) -> Any:
    if desc is None or given is None or isinstance(given, RunTensor | np.ndarray | np.generic):
        return given
    try:
        dtype = np.dtype(NUMPY_DTYPES[desc._to_spec().data_type])
        plain = np.asarray(given)
        if dtype.kind in "iu" and plain.dtype.kind in "iu" and plain.size:
            bounds = np.iinfo(dtype.name)
            if plain.min() < bounds.min or plain.max() > bounds.max:  # numpy 1 wraps such numbers round.
                raise OverflowError(f"numbers from {plain.min()} to {plain.max()} are out of bounds for {dtype}")
        return np.asarray(given, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidParameter(str(error), place=f"input {desc.name!r}") from error
    except KeyError:
        return given
