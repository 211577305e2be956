"""Backend whose models live in processes of their own."""

import json
from collections.abc import Callable, Sequence

from nnrt_device_service.isolation.child import ENTRY, Origins
from nnrt_device_service.isolation.model import IsolatedModel
from nnrt_device_service.isolation.source import Source, in_time
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import Backend, DeviceInfo, ModelConfig, PreparedModel, Support
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.files.graph_file import constant_parts, described_graph
from nnrt_hdi.forking import CAN_FORK, ForkServer
from nnrt_hdi.graph import Graph
from nnrt_hdi.host_limits import core_limit
from nnrt_hdi.part import Part
from nnrt_hdi.ports import is_on_this_host

# Address space of a process: this, a multiple of the parts, that of the runs, and that of each thread of a library, for
# its stack and the C library's heap.
_ROOM_BYTES = 1 << 30
_ROOM_SHARE = 8
_THREAD_BYTES = 160 << 20
# What may be isolated, the more the later.
_EXTENTS = ("none", "programs", "all")


def isolated(backend: Backend, settings: Settings) -> Backend:
    """Return the backend, or one that gives models processes of their own if --isolate, or the backend, wants that.

    Raises InvalidParameter if --isolate wants what the backend can't do.
    """
    can, wanted = backend.isolates if CAN_FORK else None, settings.isolate
    if wanted == "auto":
        wanted = "none" if can is None else max(_usual(settings), can, key=_EXTENTS.index)
    elif can is None and wanted != "none":
        raise InvalidParameter(
            f"it is {wanted!r}, but models of the backend {settings.backend!r} can't have processes of their own here;"
            " use none",
            place="--isolate",
        )
    if wanted == "programs" and not backend.describe().capabilities.program_formats:
        wanted = "none"
    return backend if wanted == "none" else IsolatingBackend(backend, settings, isolates_all=wanted == "all")


def _usual(settings: Settings) -> str:
    """Return programs if more than one identity may come, else none."""
    is_one = not (settings.access or settings.tls_client_ca) and all(map(is_on_this_host, settings.listen))
    return "none" if is_one else "programs"


def _restore_s(settings: Settings) -> float:
    """Return the seconds that a process gets to restore a model, before the daemon counts as stuck; 0: no limit."""
    return settings.max_run_s + settings.stuck_s / 2 if settings.max_run_s and settings.stuck_s else 0.0


class IsolatingBackend(Backend):
    """Backend of another one's device. It makes programs, or all models, in processes of their own."""

    def __init__(self, backend: Backend, settings: Settings, *, isolates_all: bool) -> None:
        self._backend = backend
        self._settings = settings
        self._isolates_all = isolates_all
        self.isolates = "all" if isolates_all else "programs"
        self.concurrent_runs = backend.concurrent_runs
        self.has_opaque_exports = backend.has_opaque_exports
        self.shares_models = backend.shares_models
        self._server: ForkServer | None = None

    def describe(self) -> DeviceInfo:
        return self._backend.describe()

    def supported(self, graph: Graph) -> list[Support]:
        return self._backend.supported(graph)

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        if not self._isolates_all:
            return self._backend.prepare(graph, config, progress)
        parts = list(constant_parts(graph).values())
        return self._isolated("prepare", json.dumps(described_graph(graph)), parts, config, progress)

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        if not self._is_isolated(parts):
            return self._backend.restore(parts, config)
        return self._isolated("restore", "", parts, config, in_time(_restore_s(self._settings)))

    def load_program(
        self, format: str, parts: Sequence[Part], config: ModelConfig, progress: Callable[[float], None]
    ) -> PreparedModel:
        return self._isolated("load_program", format, parts, config, progress)

    def loading_bytes(self, parts: Sequence[Part], config: ModelConfig) -> int:
        """Return the bytes of the parts, which the process gets as a copy."""
        if not self._is_isolated(parts):
            return self._backend.loading_bytes(parts, config)
        return sum(part.size_bytes for part in parts)

    def start(self, run_bytes: int, *, accepts_programs: bool) -> None:
        self._run_bytes = run_bytes
        # Memory of channels, in which inputs and outputs of runs lie.
        self.budget = MemoryBudget(run_bytes, whose="all isolated models'", setting="--run-bytes")
        about = {
            "backend": self._settings.backend,
            "options": self._settings.backend_options(),
            "run_bytes": run_bytes,
        }
        self._server = ForkServer(ENTRY, json.dumps(about), "isolated models live")
        self._backend.start(run_bytes, accepts_programs=False)
        if accepts_programs or self._isolates_all:
            self._server.start()

    def fault(self) -> str:
        return self._backend.fault()

    def resident_bytes(self) -> list[int]:
        """Return the bytes of memory that the process of each model has."""
        return self._server.resident_bytes() if self._server is not None else []

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._backend.close()

    def _is_isolated(self, parts: Sequence[Part]) -> bool:
        return self._isolates_all or self._backend.holds_program(parts)

    def _isolated(
        self, way: str, about: str, parts: Sequence[Part], config: ModelConfig, progress: Callable[[float], None]
    ) -> IsolatedModel:
        assert self._server is not None
        size_bytes = sum(part.size_bytes for part in parts)
        threads = int(core_limit().value)
        room_bytes = _ROOM_BYTES + _ROOM_SHARE * size_bytes + self._run_bytes + threads * _THREAD_BYTES
        source = Source(
            Origins(way, about, config, room_bytes),
            parts,
            self._server,
            self.budget,
            self._backend.describe().device_name,
            self._settings,
        )
        try:
            is_program = way == "load_program" or (way == "restore" and self._backend.holds_program(parts))
            return IsolatedModel(source, progress, is_program=is_program)
        except BaseException:
            source.close()
            raise
