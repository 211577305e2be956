"""Load of a model onto devices, which opens the model's file only once for all of them."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import Generic, TypedDict, TypeVar

from nnrt_client.build.build_task import BuildReport, Progress
from nnrt_client.build.compilation import Compilation, compilation_of
from nnrt_client.build.options import Options
from nnrt_client.build.sources import OfflineModel, unsupported_program
from nnrt_client.build.upload import WeightsWanted
from nnrt_client.build.way import Way
from nnrt_client.model.model import Model, model_of, parts_of
from nnrt_client.model.program import ONNX, Program
from nnrt_client.model_session.known_file import KnownFile, known_file
from nnrt_client.model_session.model_cache import CacheWrite, ModelCache, model_cache
from nnrt_client.model_session.model_session import ModelSession
from nnrt_client.model_session.opened_model import (
    OpenedModel,
    Shapes,
    Source,
    is_onnx,
    onnx_source,
    open_model,
    settle,
)
from nnrt_client.model_session.partition.fallback import Fallback, choose_fallback
from nnrt_client.model_session.partition.partition_dispatcher import PartitionDispatcher
from nnrt_client.model_session.ways import Taken, choose_ways, try_ways
from nnrt_client.onnx_import import import_onnx, locate_errors, program_from_onnx
from nnrt_client.run.executor import Executor
from nnrt_client.session.device import Device
from nnrt_client.tensors.frozen import Constants
from nnrt_hdi.batching import Batching
from nnrt_hdi.enums import PerformanceMode, Priority
from nnrt_hdi.errors import NnrtError

DEFAULT_WAYS = (Way.OPERATORS, Way.PROGRAM)

T = TypeVar("T")


class Once(Generic[T]):
    """Result of a function that only the first call runs, in any thread; later calls return or raise the same."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self._made: list[T] = []
        self._error: NnrtError | None = None

    def __call__(self) -> T:
        with self._lock:
            if self._error is not None:
                raise self._error.copy()
            if not self._made:
                try:
                    self._made.append(self._make())
                except NnrtError as error:
                    self._error = error.copy()  # A copy, without the frames and all that they refer to.
                    raise
            return self._made[0]


class LoadOptions(TypedDict, total=False):
    """Options of `load` and `Pool.load` about the model.

    Attributes:
        shapes: Shapes of inputs, by name, which settle unknown dimensions.
        constants: Values that inputs always have, by name: `{"sr": 16000}` makes a model without the input sr.
        ways: Ways in which the model may go to the device, in the order in which they are tried.
        cache: Directory for compiled models; True for the user's (see `cache_directory`), False for none. The session
            writes there what the device has compiled, if the device can restore it and the daemon doesn't store it
            itself. `close` ends the writing, see `wait_until_cached`. A file that goes as it is needs no cache. What an
            ONNX file became is kept there, too, without weights: the next `load` reads it only for a daemon that lacks
            them.
        fallback: "cpu" or a Fallback, for a file that goes in none of the ways: it is cut into parts that the device
            runs and parts that ONNX Runtime runs in this process. `ways` may name "partition", to try that earlier.
        float16: Whether the device may compute in half precision.
        performance_mode: How the device trades speed against power.
        priority: Priority of the model's runs among those of the same user.
        extensions: Attributes for the backend, which refuses those that it doesn't know.
        batching: How the daemon computes waiting runs together with those of other sessions that have the same model
            and batching. The model then goes as operators, and must compute the rows of its inputs independently of
            each other.
        pin: Whether the model stays on the device while no run uses it, see `Compilation.set_pin`.
    """

    shapes: Shapes | None
    constants: Constants | None
    ways: Iterable[Way | str] | None
    cache: bool | str | os.PathLike[str]
    fallback: str | Fallback | None
    float16: bool
    performance_mode: PerformanceMode
    priority: Priority
    extensions: Mapping[str, bytes] | None
    batching: Batching | None
    pin: bool


# Options of `load`, for messages.
_OPTIONS = (
    *("device", "replicas", "progress", "runtime", "settings", "on_death", "wait_s"),
    *LoadOptions.__annotations__,
)


class Loading:
    """Model and the options with which it is loaded, on one device or on several."""

    def __init__(
        self,
        model: Source | Model,
        *,
        shapes: Shapes | None = None,
        constants: Constants | None = None,
        ways: Iterable[Way | str] | None = None,
        cache: bool | str | os.PathLike[str] = True,
        fallback: str | Fallback | None = None,
        float16: bool = False,
        performance_mode: PerformanceMode = PerformanceMode.NONE,
        priority: Priority = Priority.NONE,
        extensions: Mapping[str, bytes] | None = None,
        batching: Batching | None = None,
        pin: bool = False,
        **unknown: object,
    ) -> None:
        """Check the options. Raise InvalidParameter for bad ones, InvalidPath or InvalidFile for a bad file."""
        for name in unknown:
            near = get_close_matches(name, _OPTIONS, 1)
            known = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_OPTIONS)}"
            raise TypeError(f"load() has no option {name!r}; {known}")
        self._source = model
        self._shapes, self._constants = shapes, constants
        self._cache = cache
        self._options = Options(
            float16 or None,
            performance_mode or None,
            priority or None,
            dict(extensions or {}),
            batching=batching,
            pin=pin,
        )
        self._fallback = choose_fallback(fallback)
        self._ways = choose_ways(DEFAULT_WAYS if ways is None else ways, _possible_ways(model), self._fallback)
        file = known_file(model, shapes, constants, cache)
        self._known_model = Once(file.model if file else lambda: None)
        self._known_program = Once(file.program if file else lambda: None)
        self._opened = Once(partial(_open, model, shapes, constants, file))
        self._program = Once(partial(_read_program, model, shapes, constants, file))

    @property
    def digest(self) -> bytes:
        """Digest of the model, the same on every host.

        Raises:
            NnrtError: The model can't be opened, as in `load_on`.
        """
        if Way.OPERATORS in self._ways:
            try:
                opened = self._known_model() or self._opened()
            except NnrtError:
                if self._ways == [Way.OPERATORS]:
                    raise
            else:
                if isinstance(opened, Model):
                    return opened.digest
                return hashlib.sha256(opened.data).digest() if opened.model is None else opened.model.digest
        return (self._known_program() or self._program()).digest

    def load_on(self, find_device: Callable[[], Device], stack: ExitStack, progress: Progress | None) -> ModelSession:
        """Make the model ready to run on a device.

        Args:
            find_device: Finds the device; called only after the file has been read.
            stack: Closes the model's parts; the session takes them over.
            progress: Takes the progress.

        Returns:
            The session.

        Raises:
            NnrtError: As `load`.
        """
        if progress is not None and not isinstance(self._source, Model):
            progress("reading", 0.0)

        def build(model: Model | OpenedModel) -> Compilation:
            return self._build_model(model, find_device(), progress)

        attempts: dict[Way, Callable[[], Compilation | PartitionDispatcher]] = {
            Way.OPERATORS: lambda: _build_known(self._known_model, self._opened, build),
            Way.PROGRAM: lambda: self._build_program(find_device(), progress),
            Way.PARTITION: lambda: self._build_parts(find_device(), build),
        }
        return _make_session(try_ways(self._ways, attempts), find_device(), stack)

    def _build_program(self, device: Device, progress: Progress | None) -> Compilation:
        """Build an ONNX file as it is, without a cache, which would only repeat the file."""
        if ONNX not in device.capabilities.program_formats:  # Before the file is read.
            raise unsupported_program(device, ONNX)

        def build(program: Program) -> Compilation:
            return _build(compilation_of(program, device), self._options, progress)

        return _build_known(self._known_program, self._program, build)

    def _build_parts(self, device: Device, build: Callable[[Model], Compilation]) -> PartitionDispatcher:
        """Build the parts of an ONNX file, on the device and in this process."""
        assert not isinstance(self._source, Model)
        assert self._fallback is not None
        model = onnx_source(self._source)
        with locate_errors(model):
            # Not at the top: only partitioned models need its packages.
            from nnrt_client.model_session.partition.build import build_parts

            def execute(part: Model, stack: ExitStack) -> tuple[Executor, BuildReport]:
                compilation = build(part)
                assert compilation.report is not None
                return _make_executor(compilation, stack), compilation.report

            return build_parts(model, device, execute, self._shapes, self._constants, self._fallback.smallest_part)

    def _build_model(self, opened: Model | OpenedModel, device: Device, progress: Progress | None) -> Compilation:
        """Build a model, or restore it from the cache."""
        options, cache = self._options, self._cache
        model = opened if isinstance(opened, Model) else opened.model
        if model is None:
            assert isinstance(opened, OpenedModel)
            path = f" {os.fspath(self._source)!r}" if isinstance(self._source, str | os.PathLike) else ""
            offline = OfflineModel(lambda: opened.data, f"offline model{path}")
            return _build(compilation_of(offline, device), options, progress)
        compilation = Compilation(model, device)
        return _build(compilation, options, progress, lambda chosen: model_cache(cache, model, chosen, device))


def _make_session(taken: Taken[Compilation | PartitionDispatcher], device: Device, stack: ExitStack) -> ModelSession:
    """Make the session of a built model; the session takes over the resources that the stack closes."""
    made = taken.result
    executor = _make_executor(made, stack) if isinstance(made, Compilation) else stack.enter_context(Executor._of(made))
    assert made.report is not None
    report = replace(made.report, way=taken.way, passed_over=taken.passed_over)
    return ModelSession(executor, device, report, stack.pop_all())


def _make_executor(compilation: Compilation, stack: ExitStack) -> Executor:
    """Return the executor of a compilation; the stack closes it, and before that ends the write to the cache."""
    with compilation:  # It would keep the weights in memory.
        executor = stack.enter_context(Executor(compilation))
        if unsaved := compilation._unsaved:
            stack.callback(CacheWrite(unsaved).close)
    return executor


def _possible_ways(model: Source | Model) -> Sequence[Way]:
    if isinstance(model, Model) or not is_onnx(model):
        return (Way.OPERATORS,)
    return tuple(Way)


def _open(
    model: Source | Model, shapes: Shapes | None, constants: Constants | None, file: KnownFile | None
) -> Model | OpenedModel:
    if isinstance(model, Model):
        return model_of(settle(parts_of(model).graph, shapes, constants)) if shapes or constants else model
    if file is None:
        return open_model(model, shapes, constants=constants)
    return file.keep_model(partial(import_onnx, onnx_source(model), shapes, constants))


def _read_program(
    model: Source | Model, shapes: Shapes | None, constants: Constants | None, file: KnownFile | None
) -> Program:
    assert not isinstance(model, Model)
    read = partial(program_from_onnx, onnx_source(model), shapes=shapes, constants=constants, is_mapped=True)
    return read() if file is None else file.keep_program(lambda beside: read(beside=beside))


def _build_known(
    recall: Callable[[], T | None], read: Callable[[], T], build: Callable[[T], Compilation]
) -> Compilation:
    """Build what the cache knows of a file; if it knows nothing, or the daemon lacks weights, read the file."""
    if (known := recall()) is not None:
        with suppress(WeightsWanted):
            return build(known)
    return build(read())


def _build(
    compilation: Compilation,
    options: Options,
    progress: Progress | None,
    choose_cache: Callable[[Options], ModelCache | None] = lambda _: None,
) -> Compilation:
    """Build a compilation; `choose_cache` returns the cache for a build with these options."""
    with ExitStack() as stack:
        stack.enter_context(compilation)
        compilation._set_options(options)
        if found := choose_cache(compilation._options):
            compilation._set_user_cache(found)
        compilation.build(progress)
        stack.pop_all()
    return compilation
