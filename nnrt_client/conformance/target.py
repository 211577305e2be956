"""Daemon under test: sessions with it, prepared models, and whether it is still alive."""

import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from nnrt_client.build.build_task import BuildTask
from nnrt_client.build.prepared import PreparedHandle
from nnrt_client.build.upload import compile_graph, load_program, restore
from nnrt_client.model.program import Program
from nnrt_client.run.executor import Executor
from nnrt_client.run.model_dispatcher import ModelDispatcher
from nnrt_client.session.device import Device
from nnrt_client.session.membership import Membership
from nnrt_client.session.session import Session
from nnrt_client.settings import Settings
from nnrt_hdi import wire
from nnrt_hdi.backend import ModelConfig, Support
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import ConnectionFailed, NnrtError, OperationForbidden, UnavailableDevice
from nnrt_hdi.graph import Graph
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import Array, TensorSpec
from nnrt_hdi.v2 import device_pb2, prepared_model_pb2

# In the names of models, so that the kit shares none with clients, and finds none in a store.
_KIT = secrets.token_hex(4)
# Seconds between attempts to reach a daemon that has ended.
_PAUSE_S = 0.1
_CALLBACK_THREADS = 2


class Breach(Exception):
    """The daemon broke the contract. The message says what the kit asked, what came, and what would be right."""


class DaemonGone(Exception):
    """The daemon ended or stopped answering, and did not come back in time."""


class Prepared(Closable):
    """Prepared model in the daemon."""

    def __init__(self, connection: "Connection", info: Any, config: ModelConfig) -> None:
        self.connection = connection
        self.handle = PreparedHandle(connection.session, info, config.priority)
        self._executor: Executor | None = None
        self._is_open = True

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Inputs as the device describes them; -1 is a dimension that varies."""
        return self.handle.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Outputs as the device describes them; -1 is a dimension that varies."""
        return self.handle.outputs

    @property
    def executor(self) -> Executor:
        """Executor of the model, the same that applications use."""
        if self._executor is None:
            self._executor = Executor._of(ModelDispatcher(self.handle.retain()))
        return self._executor

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run once. Raises like `Executor.run_sync`."""
        return list(self.executor.run_sync(list(inputs)))

    def export(self) -> list[Part]:
        """Fetch the compiled model. Raises the device's error if it refuses."""
        return self.handle.export(self.connection.begin_build())

    def close(self) -> None:
        was_open, self._is_open = self._is_open, False
        if self._executor is not None:
            self._executor.close()
        if was_open:
            self.handle.release()


class Connection(Closable):
    """Session with the daemon; `close` ends the session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.device = Device(session)

    @property
    def instance(self) -> bytes:
        """Random ID that the daemon chose at its start."""
        return self.session.welcome.instance_id

    def supported(self, graph: Graph) -> list[Support]:
        """Ask for each node whether the device runs it.

        Raises Breach if a refusal has no reason, or if there isn't one answer per node.
        """
        request = device_pb2.GetSupportedOperationRequest(model=wire.model_message(graph))
        reply = self.call("NnrtDevice.GetSupportedOperation", request)
        if len(reply.nodes) != len(graph.nodes):
            raise Breach(f"there are {len(reply.nodes)} answers about {len(graph.nodes)} nodes; give one for each")
        for index, answer in enumerate(reply.nodes):
            if not answer.supported and not answer.reason.strip():
                raise Breach(f"{graph.place(index)} is refused without a reason; say what the device lacks")
        return wire.supports(reply)

    def prepare(self, graph: Graph, config: ModelConfig | None = None) -> Prepared:
        """Compile a graph as it is, including nodes that applications can't add."""
        config, graph = config or ModelConfig(), replace(graph, name=f"{graph.name} of kit {_KIT}")
        return Prepared(self, compile_graph(self.begin_build(), graph, config), config)

    def restore(self, parts: Sequence[Part], config: ModelConfig | None = None) -> Prepared:
        """Load an exported model."""
        config = config or ModelConfig()
        return Prepared(self, restore(self.begin_build(), parts, config), config)

    def load_program(self, format: str, parts: Sequence[Part]) -> Prepared:
        """Load a file in a format that the device itself reads."""
        config = ModelConfig()
        return Prepared(self, load_program(self.begin_build(), Program(format, tuple(parts)), config), config)

    def call(self, name: str, request: Any, timeout_s: float | None = None) -> Any:
        """Call an RPC."""
        return self.session.call(name, request, timeout_s or self.session.settings.request_timeout_s)

    def begin_build(self) -> BuildTask:
        """Return a new build task on this session, which ends after `build_timeout_s`."""
        build = BuildTask()
        build.connect(self.session)
        return build

    def close(self) -> None:
        self.session.close()


class Target(Closable):
    """Daemon at an address or behind a name."""

    def __init__(self, address: str, settings: Settings, return_s: float) -> None:
        """Connect. A daemon that ends later gets `return_s` seconds to be restarted.

        Raises ConnectionFailed if no daemon answers, or the error with which it refuses the session.
        """
        self.settings = settings
        self._return_s = return_s
        self._members = Membership((address,), settings)
        self._callbacks = ThreadPoolExecutor(_CALLBACK_THREADS, thread_name_prefix="nnrt-callback")
        self._lock = threading.Lock()
        self._open: set[Connection] = set()
        self._spare: Connection | None = None
        self._closed = threading.Event()
        try:
            self._spare = self._connect()
        except BaseException:
            self.close()
            raise
        self.info = self._spare.session.info
        self.address = self._spare.session.address
        self.name = self._spare.device.name
        self._instance = self._spare.instance

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """Open a session for the duration of the block. Raises ConnectionFailed if the daemon has ended."""
        spare, self._spare = self._spare, None
        connection = spare or self._connect()
        try:
            yield connection
        finally:
            self._close(connection)

    def require_rights(self) -> None:
        """Raise OperationForbidden if this client's role is too low for the kit, which compiles and restores models."""
        with self.session() as connection:
            try:
                connection.call("PreparedModel.ExportModelCache", prepared_model_pb2.ExportModelCacheRequest())
            except NnrtError as error:  # There is no such model, which a daemon may say in any way.
                if isinstance(error, OperationForbidden) and "role" in error.message:
                    raise error.at("the kit compiles and restores models") from error

    def has_survived(self) -> bool:
        """Return whether the daemon is the same instance as at the last call; wait for its return if it has ended.

        Raises DaemonGone if it doesn't come back.
        """
        if self._spare is None:
            self._spare = self._await_return()
        known, self._instance = self._instance, self._spare.instance
        return self._instance == known

    def _await_return(self) -> Connection:
        deadline = time.monotonic() + self._return_s
        while True:
            try:
                return self._connect()
            except (ConnectionFailed, UnavailableDevice) as error:
                if self._closed.is_set() or time.monotonic() >= deadline:
                    why = f"the daemon ended, and none answers at {self.address} within {self._return_s:g} s"
                    raise DaemonGone(f"{why}: {error.reason}") from error
            self._closed.wait(_PAUSE_S)

    def _connect(self) -> Connection:
        addresses = self._members.addresses
        if not addresses:
            name, why = next(iter(self._members.failures().items()))
            raise ConnectionFailed(why, place=name)
        connection = Connection(Session(addresses[0], self.settings, self._callbacks))
        with self._lock:
            if not self._closed.is_set():
                self._open.add(connection)
                return connection
        connection.close()
        raise ConnectionFailed("the kit ends", place=addresses[0])

    def _close(self, connection: Connection) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()

    def close(self) -> None:
        """End all sessions with their calls and runs. Any thread may call it."""
        with self._lock:
            self._closed.set()
            connections, self._open = self._open, set()
        for connection in connections:
            connection.close()
        self._members.close()
        self._callbacks.shutdown(wait=False)


def first_reason(supports: Sequence[Support]) -> str:
    """Return the first reason for which the device refuses a node; empty if it refuses none."""
    return next((support.reason for support in supports if not support.supported), "")
