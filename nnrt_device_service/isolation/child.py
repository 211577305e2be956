"""Process of a model: it makes the model, and runs it for the daemon.

A server, which has made the backend, forks the process. Each channel has a thread here.
"""

import json
import logging
import math
import os
import resource
import socket
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from nnrt_device_service.host.allocator import keep_freed_memory
from nnrt_device_service.isolation import messages
from nnrt_device_service.isolation.messages import CONTROL, MESSAGE, Layout, described, remember
from nnrt_hdi.backend import Backend, Cancellation, ModelConfig, PreparedModel, load_backend
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import NnrtError, OutOfMemory, Unsupported
from nnrt_hdi.files.graph_file import described_spec, read_graph
from nnrt_hdi.forking import Work, aligned, limit_resources, read_request
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.part import Part
from nnrt_hdi.shared_memory import mapped
from nnrt_hdi.tensor import Array, TensorSpec

ENTRY = f"{__name__}:prepare"
_DESCRIPTORS = 1024
_OOM_SCORE = "500"
_OF_RUNS = (messages.RUN, messages.PROFILE, messages.SIZES)
_SHAPE_AND_TYPE = attrgetter("shape", "dtype")


@dataclass(frozen=True, slots=True)
class Origins:
    """Request for a model, which the parts follow in the memory.

    `way` is the method of Backend: prepare, with `about` the graph as JSON; load_program, with `about` the format; or
    restore.
    """

    way: str
    about: str
    config: ModelConfig
    # Bytes of address space that the process may take, and of a file.
    room_bytes: int
    # Offset, size and digest of each part.
    parts: Sequence[tuple[int, int, bytes]] = ()


def prepare(argument: str) -> Work:
    """Make the backend in the server; the entry of its ForkServer. The argument is JSON."""
    keep_freed_memory()
    about = json.loads(argument)
    backend = load_backend(about["backend"], about["options"])
    backend.start(about["run_bytes"], accepts_programs=False)
    number = TensorSpec(DataType.FLOAT32, (1,))
    with suppress(NnrtError):  # What a library does first takes longest.
        backend.supported(Graph((number, number), (Node(NodeType.ABS, (0,), (1,)),), (0,), (1,)))
    return partial(_serve, backend)


def _serve(backend: Backend, descriptors: Sequence[int]) -> int:
    memory, controls, end = descriptors
    os.close(end)  # The server reports there, and nobody else.
    child = _Child(backend, memory)
    channels: dict[int, _Channel] = {}
    with socket.socket(fileno=controls) as control:
        while True:
            message, fds, _, _ = socket.recv_fds(control, CONTROL.size, 2)
            if not message:  # The daemon wants this process no longer.
                return 0
            number, call = CONTROL.unpack(message)
            if fds:
                channels[number] = _Channel(child, *fds)
                threading.Thread(target=_serve_channel, args=(channels, number), daemon=True).start()
            elif (channel := channels.get(number)) is not None:
                channel.cancel(call)


def _serve_channel(channels: dict[int, "_Channel"], number: int) -> None:
    """Serve a channel until the daemon closes it, and give its memory back."""
    try:
        channels[number].serve()
    finally:
        del channels[number]


class _Child:
    """Model of this process."""

    def __init__(self, backend: Backend, memory: int) -> None:
        self._backend = backend
        origins, data = read_request(memory)
        os.close(memory)
        self._origins: Origins = origins
        self.parts = [Part(data[at : at + size], sha256) for at, size, sha256 in origins.parts]
        limit_resources(self._origins.room_bytes, None, self._origins.room_bytes, _DESCRIPTORS)
        with suppress(OSError):  # Where memory is short, the host ends this process rather than the daemon.
            Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
        self.model: PreparedModel | None = None

    def load(self, channel: "_Channel", crashes: int) -> Any:
        """Make the model as the daemon would, and return its description."""
        config, notes = replace(self._origins.config, crashes=crashes), _Notes(logging.WARNING)
        progress = partial(channel.send, messages.PROGRESS)
        logging.getLogger().addHandler(notes)
        match self._origins.way:
            case "prepare":
                graph = read_graph(json.loads(self._origins.about), {part.sha256: part for part in self.parts})
                model = self._backend.prepare(graph, config, progress)
            case "load_program":
                model = self._backend.load_program(self._origins.about, self.parts, config, progress)
            case _:
                model = self._backend.restore(self.parts, config)
        try:
            ranges = [[entry.min_dims, entry.max_dims] for entry in model.input_ranges()]
        except Unsupported:
            ranges = None
        self.model = model
        specs = [[described_spec(spec) for spec in each] for each in (model.inputs, model.outputs)]
        return [*specs, model.kept_bytes, model.device_bytes, ranges, notes.lines]


def _allow_files() -> None:
    """Let a library write files from now on: profiles, or models."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


class _Notes(logging.Handler):
    """Handler that keeps warnings for the daemon's log."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage()[: messages.MOST_TEXT])


class _Channel:
    """Channel, as a thread of the process serves it."""

    def __init__(self, child: _Child, requests: int, memory: int) -> None:
        self._child = child
        self._socket = socket.socket(fileno=requests)
        self._map(memory)
        # Number and cancellation of the current run, and the number of the last call to cancel.
        self._current = 0, Cancellation()
        self._cancelled = 0

    def cancel(self, call: int) -> None:
        self._cancelled = max(self._cancelled, call)
        current, cancellation = self._current
        if current == call:
            cancellation.cancel()

    def serve(self) -> None:
        with self._socket:
            while message := self._socket.recv(MESSAGE.size):
                kind, deadline, count, call = MESSAGE.unpack(message)
                try:
                    if kind in _OF_RUNS:
                        self._run(kind, deadline, count, call)
                    elif kind == messages.MEMORY:
                        self._map(*socket.recv_fds(self._socket, 1, 1)[1])
                    else:
                        self._answer(kind, count)
                except BaseException as error:
                    self._fail(error)

    def _answer(self, kind: int, count: int) -> None:
        question, model = json.loads(bytes(self._memory[:count])), self._child.model
        if kind == messages.LOAD:
            self._reply(aligned(count), self._child.load(self, question))
            return
        assert model is not None
        given = {part.sha256: number for number, part in enumerate(self._child.parts)}
        _allow_files()
        parts = [(part, given.get(part.sha256)) for part in model.export()]
        new = [part for part, number in parts if number is None]
        self._reply(aligned(count), [[part.size_bytes, number] for part, number in parts], new)

    def _run(self, kind: int, deadline: float, count: int, call: int) -> None:
        head, model = bytes(self._memory[:count]), self._child.model
        assert model is not None
        known = self._inputs.get(head)
        if known is None:
            layout = Layout(head, count)
            arrays = layout.views(self._memory)
            for array in arrays:
                array.flags.writeable = False
            known = remember(self._inputs, head, (arrays, layout.end))
        inputs, end = known
        if kind == messages.SIZES:
            sizes = model.sizes(inputs)
            numbers = {name: getattr(sizes, name) for name in messages.NUMBERS}
            self._reply(end, [[described_spec(spec) for spec in sizes.outputs], numbers])
            return
        cancellation = Cancellation(None if deadline == math.inf else deadline)
        self._current = call, cancellation
        if self._cancelled == call:
            cancellation.cancel()
        if kind == messages.RUN:
            self._put(end, model.run(inputs, cancellation), b"")
        else:
            _allow_files()
            outputs, times = model.profile(inputs, cancellation)
            self._put(end, outputs, json.dumps([[type(time).__name__, *time] for time in times]).encode())

    def _put(self, end: int, outputs: Sequence[Array], more: bytes) -> None:
        """Reply with the layout of outputs, `more`, and then the outputs."""
        key = (end, len(more), *map(_SHAPE_AND_TYPE, outputs))
        known = self._outputs.get(key)
        if known is None:
            head = described(outputs)
            layout = Layout(head, end + len(head) + len(more))
            self._make_room(layout.end)
            known = remember(self._outputs, key, (head, layout.views(self._memory)))
        head, views = known
        for view, output in zip(views, outputs, strict=True):
            np.copyto(view, output)
        self._memory[end : end + len(head) + len(more)] = head + more
        self.send(messages.DONE, 0.0, len(head), len(more))

    def _reply(self, end: int, answer: Any, more: Sequence[Part] = ()) -> None:
        """Reply with JSON, and parts behind it."""
        data = json.dumps(answer).encode()
        begin, count = end + len(data), sum(part.size_bytes for part in more)
        self._make_room(begin + count)
        self._memory[end:begin] = data
        for part in more:
            part.fill(self._memory[begin : begin + part.size_bytes], 0)
            begin += part.size_bytes
        self.send(messages.DONE, 0.0, len(data), count)

    def _make_room(self, size_bytes: int) -> None:
        """Ask for more memory, and go on there, if a reply needs it."""
        if size_bytes > len(self._memory):
            self.send(messages.ROOM, 0.0, size_bytes)
            *_, count, _ = MESSAGE.unpack(self._socket.recv(MESSAGE.size))
            if not count:
                raise OutOfMemory(f"the reply of the model's process takes {size_bytes} bytes; run smaller batches")
            self._map(*socket.recv_fds(self._socket, 1, 1)[1])

    def _map(self, memory: int) -> None:
        self._memory = mapped(memory, os.fstat(memory).st_size)
        os.close(memory)
        # Inputs and their end, by their layout; outputs' layout and views, by what decides them.
        self._inputs: dict[Any, tuple[Sequence[Array], int]] = {}
        self._outputs: dict[Any, tuple[bytes, Sequence[Array]]] = {}

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, MemoryError):
            error = OutOfMemory("the model's process has not enough memory for it; ask for less")
        code = int(error.code) if isinstance(error, NnrtError) else None
        texts = (error.message, error.place) if isinstance(error, NnrtError) else (traceback.format_exc(), "")
        data = json.dumps([code, *(text[-messages.MOST_TEXT :] for text in texts)]).encode()
        self._memory[: len(data)] = data
        self.send(messages.FAILED, 0.0, len(data))

    def send(self, kind: int, fraction: float = 0.0, count: int = 0, more: int = 0) -> None:
        self._socket.send(MESSAGE.pack(kind, fraction, count, more))
