"""Options of sessions and runs. What can't be had is refused when it is asked for, not when it is missed."""

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
    """How far a graph is optimized. The device decides; results are the same."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(Enum):
    """Whether operators run beside each other. The device decides."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(Enum):
    """In which order operators run. The device decides."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Option(Generic[ValueT]):
    """An attribute that takes values of one type, or `default` only, where `refusal` says what to do instead."""

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
        value: ValueT = holder._given.get(self._name, self._default)
        return value

    def __set__(self, holder: "_Options", value: ValueT) -> None:
        if not isinstance(value, type(self._default)):
            raise WrongType(f"{self._name} is {value!r}; give a value of type {type(self._default).__name__}")
        if self._refusal and value != self._default:
            raise NotSupported(f"{self._name} is {value!r}; {self._refusal}")
        holder._given[self._name] = value


class _Options:
    """Base of both: has the values of its options, and entries by key."""

    __slots__ = ("__weakref__", "_entries", "_given")

    def __init__(self) -> None:
        self._given: dict[str, Any] = {}
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

    Threads, memory, logging and optimization are the daemon's, so what says how to compute is taken and has no effect;
    what asks for something that a caller would miss is refused.
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
        """Give the dimensions of this name this value."""
        self._dims_by_name[dim_name] = dim_value

    def add_free_dimension_override_by_denotation(self, dim_denotation: str, dim_value: int) -> None:
        """Give the dimensions that the model denotes so this value."""
        self._dims_by_denotation[dim_denotation] = dim_value

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep an entry, to be read again; it has no other effect."""
        self._add(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """Give the value of an entry."""
        return self._get(key)

    def has_providers(self) -> bool:
        """Say that there are none: providers are given to the session."""
        return False

    def register_custom_ops_library(self, path: str) -> None:
        """Refuse a library: it would have to run in the daemon."""
        raise NotSupported(f"{path!r} would have to run in the daemon; have its operator register it in the backend")

    def add_initializer(self, name: str, value: object) -> None:
        """Refuse to replace a weight."""
        raise NotSupported(f"weight {name!r} can't be replaced at loading; save the model with the other weight")

    def add_external_initializers(self, names: Sequence[str], values: Sequence[object]) -> None:
        """Refuse weights that are not in files."""
        raise NotSupported(f"weights {list(names)} can't be given from memory; keep them in files beside the model")

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[object], lengths: Sequence[int]
    ) -> None:
        """Refuse files that are not on disk."""
        raise NotSupported(f"files {list(names)} can't be given from memory; write them beside the model")

    def add_provider(self, name: str, options: object) -> None:
        """Refuse a provider, which is for the session to have."""
        raise NotSupported(f"provider {name!r} can't be given here; give InferenceSession `providers`")


class RunOptions(_Options):
    """Options of runs. Setting `terminate` ends the runs under way that were given them, and lets no other begin.

    The entry `nnrt.timeout_ms` bounds a run.
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
        # What ends the runs that are under way.
        self._stops: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def terminate(self) -> bool:
        """Whether runs with these options end with Fail."""
        return self._is_terminating

    @terminate.setter
    def terminate(self, terminate: bool) -> None:
        with self._lock:
            self._is_terminating = bool(terminate)
            futures = list(self._stops) if terminate else []
        for future in futures:
            future.cancel()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep an entry, to be read again; but for `nnrt.timeout_ms` it has no other effect."""
        self._add(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """Give the value of an entry."""
        return self._get(key)

    def add_active_adapter(self, adapter: object) -> None:
        """Refuse an adapter: its weights are no part of the model that the device has."""
        raise NotSupported("adapters are not taken; save the model with the adapter's weights merged")

    @property
    def timeout_ms(self) -> int | None:
        """Milliseconds of the entry `nnrt.timeout_ms`; None without."""
        text = self._entries.get(TIMEOUT_KEY)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text)):
            raise BadBinding(f"{TIMEOUT_KEY} is {text!r}; give a whole number of 1 or more")
        return int(text)

    def _started(self, start: Callable[[], Any]) -> Any:
        """Start a run that `terminate` ends; None where it is set."""
        with self._lock:
            if self._is_terminating:
                return None
            future = start()
            self._stops.add(future)
        return future
