"""Options of sessions and runs. Setting an option that is not supported raises NotSupported at once."""

import threading
import weakref
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Generic, TypeVar, overload

from nnrt_client.onnxruntime.errors import BadBinding, NotSupported, WrongType

TIMEOUT_KEY = "nnrt.timeout_ms"
_MOST_DIGITS = 18

ValueT = TypeVar("ValueT")


class GraphOptimizationLevel(Enum):
    """Optimization level of a graph. It has no effect: the device decides."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(Enum):
    """Execution of operators in sequence or in parallel. It has no effect: the device decides."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(Enum):
    """Order of operators. It has no effect: the device decides."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Option(Generic[ValueT]):
    """Descriptor of an option.

    It accepts values of the type of `default`. With a `refusal`, it accepts only `default`; the `refusal` says what to
    do instead.
    """

    def __init__(self, default: ValueT, refusal: str = "") -> None:
        self._default = default
        self._refusal = refusal

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, holder: None, owner: type) -> "_Option[ValueT]": ...
    @overload
    def __get__(self, holder: "_Options", owner: type) -> ValueT: ...
    def __get__(self, holder: "_Options | None", owner: type) -> "_Option[ValueT] | ValueT":
        if holder is None:
            return self
        value: ValueT = holder._values.get(self._name, self._default)
        return value

    def __set__(self, holder: "_Options", value: ValueT) -> None:
        if not isinstance(value, type(self._default)):
            raise WrongType(f"{self._name} is {value!r}; give a value of type {type(self._default).__name__}")
        if self._refusal and value != self._default:
            raise NotSupported(f"{self._name} is {value!r}; {self._refusal}")
        holder._values[self._name] = value


class _Options:
    """Base of SessionOptions and RunOptions: values of options, and entries by key."""

    __slots__ = ("__weakref__", "_entries", "_values")

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._entries: dict[str, str] = {}

    def _add(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise WrongType(f"the entry is {key!r}: {value!r}; give two texts")
        self._entries[key] = value

    def _get(self, key: str) -> str:
        if key not in self._entries:
            raise BadBinding(f"{type(self).__name__} does not have configuration with key: {key}")
        return self._entries[key]


class SessionOptions(_Options):
    """Options of a session.

    The daemon decides about threads, memory, logging and optimization, so options for these have no effect. Options
    that change results or write files are refused.
    """

    __slots__ = ("_dims_by_denotation", "_dims_by_name")

    enable_cpu_mem_arena = _Option(True)
    enable_mem_pattern = _Option(True)
    enable_mem_reuse = _Option(True)
    enable_profiling = _Option(False, "run `nnrt bench` or read RunTimes of nnrt_client.load for where time goes")
    execution_mode = _Option(ExecutionMode.ORT_SEQUENTIAL)
    execution_order = _Option(ExecutionOrder.DEFAULT)
    graph_optimization_level = _Option(GraphOptimizationLevel.ORT_ENABLE_ALL)
    inter_op_num_threads = _Option(0)
    intra_op_num_threads = _Option(0)
    log_severity_level = _Option(-1)
    log_verbosity_level = _Option(0)
    logid = _Option("")
    optimized_model_filepath = _Option("", "the device keeps what it compiles; `nnrt compile` writes an offline model")
    profile_file_prefix = _Option("onnxruntime_profile_")
    use_deterministic_compute = _Option(False, "it is the device that decides; leave it False")
    use_per_session_threads = _Option(True)

    def __init__(self) -> None:
        super().__init__()
        self._dims_by_name: dict[str, int] = {}
        self._dims_by_denotation: dict[str, int] = {}

    def add_free_dimension_override_by_name(self, dim_name: str, dim_value: int) -> None:
        """Fix the dimensions of this name."""
        self._dims_by_name[dim_name] = dim_value

    def add_free_dimension_override_by_denotation(self, dim_denotation: str, dim_value: int) -> None:
        """Fix the dimensions of this denotation."""
        self._dims_by_denotation[dim_denotation] = dim_value

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set an entry, which has no effect."""
        self._add(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """Return the value of an entry. Raise BadBinding if it was not set."""
        return self._get(key)

    def has_providers(self) -> bool:
        """Return False: only the session's constructor takes providers."""
        return False

    def register_custom_ops_library(self, path: str) -> None:
        """Raise NotSupported: the library would have to run in the daemon."""
        raise NotSupported(f"{path!r} would have to run in the daemon; have its operator register it in the backend")

    def add_initializer(self, name: str, value: object) -> None:
        """Raise NotSupported: weights can't be replaced."""
        raise NotSupported(f"weight {name!r} can't be replaced at loading; save the model with the other weight")

    def add_external_initializers(self, names: Sequence[str], values: Sequence[object]) -> None:
        """Raise NotSupported: weights must be in files."""
        raise NotSupported(f"weights {list(names)} can't be given from memory; keep them in files beside the model")

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[object], lengths: Sequence[int]
    ) -> None:
        """Raise NotSupported: files must be on disk."""
        raise NotSupported(f"files {list(names)} can't be given from memory; write them beside the model")

    def add_provider(self, name: str, options: object) -> None:
        """Raise NotSupported: only the session's constructor takes providers."""
        raise NotSupported(f"provider {name!r} can't be given here; give InferenceSession `providers`")


class RunOptions(_Options):
    """Options of runs.

    Setting `terminate` ends all current runs with these options, and prevents new ones. The entry `nnrt.timeout_ms`
    is the timeout of a run.
    """

    __slots__ = ("_is_terminating", "_lock", "_stops")

    log_severity_level = _Option(-1)
    log_verbosity_level = _Option(0)
    logid = _Option("")
    only_execute_path_to_fetches = _Option(False)

    def __init__(self) -> None:
        super().__init__()
        self._is_terminating = False
        self._lock = threading.RLock()
        # Futures of the current runs.
        self._stops: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def terminate(self) -> bool:
        """True if runs with these options end with Fail."""
        return self._is_terminating

    @terminate.setter
    def terminate(self, terminate: bool) -> None:
        with self._lock:
            self._is_terminating = bool(terminate)
            futures = list(self._stops) if terminate else []
        for future in futures:
            future.cancel()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set an entry. Only `nnrt.timeout_ms` has an effect."""
        self._add(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """Return the value of an entry. Raise BadBinding if it was not set."""
        return self._get(key)

    def add_active_adapter(self, adapter: object) -> None:
        """Raise NotSupported: the weights of an adapter are no part of the model on the device."""
        raise NotSupported("adapters are not taken; save the model with the adapter's weights merged")

    @property
    def timeout_ms(self) -> int | None:
        """Timeout of a run in milliseconds, from the entry `nnrt.timeout_ms`, or None."""
        text = self._entries.get(TIMEOUT_KEY)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text)):
            raise BadBinding(f"{TIMEOUT_KEY} is {text!r}; give a whole number of 1 or more")
        return int(text)

    def _start(self, start: Callable[[], Any]) -> Any:
        """Start a run that `terminate` can end. Return None if `terminate` is set already."""
        with self._lock:
            if self._is_terminating:
                return None
            future = start()
            self._stops.add(future)
        return future
