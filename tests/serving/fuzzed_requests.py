"""Random requests for both faces from a seed: sound ones, changed ones, and corrupted bytes.

`make fuzz` runs this module, which makes them for a while.
"""

import json
import os
import socket
import struct
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import click
import grpc
import numpy as np
from daemon_process import DaemonProcess

from nnrt_client.serving.wire import open_inference_pb2 as pb
from serving.raw_http import Answer, answered, call, connected
from serving.served import MODELS, ServerProcess, add_model

FLAGS = ("--shared-memory", "--request-bytes", "1000000", "--held-bytes", "2000000", "--read-s", "0.5")
HEADER = "Inference-Header-Content-Length"
_SERVICE = "inference.GRPCInferenceService"
_REGION = f"nnrt-fuzzed-{os.getpid()}"
_DEADLINE_S = 20.0
# Input names, data type and elements of requests that are sound.
_SOUND: dict[str, tuple[str, str, list[int], list[Any]]] = {
    "next": ("x", "FP32", [3], [1.5, 2, -3]),
    "sum": ("ab", "FP32", [1, 3], [1, 2, 3]),
    "scores": ("x", "FP32", [1, 10], [*range(10)]),
    "int64": ("x", "INT64", [2], [1 << 40, -1]),
    "not": ("x", "BOOL", [2], [True, False]),
}
_PACKED = {"FP32": "<f", "INT64": "<q", "BOOL": "<?"}
_NUMBERS = (0, 1, 2, 3, -1, 7, 12, 1 << 20, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 10**30)
_TEXTS = ("", "x", "y", "next", "FP16", "BYTES", "BOOL", "\ud800", "é" * 50)
_VALUES: tuple[Any, ...] = (*_NUMBERS, *_TEXTS, None, True, False, 1e308, -0.5, [], {})
_PARAMETERS = (
    *("binary_data_size", "binary_data", "binary_data_output", "classification", "timeout", "priority", "sequence_id"),
    *("shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"),
)
_PATHS = (
    *("", "/health/live", "/health/ready", "/models/stats", "/models/next", "/models/next/config"),
    *("/models/next/ready", "/models/next/versions/1", "/models/%s/stats", "/models/%s/versions/%s/infer"),
    *("/repository/index", "/repository/models/%s/load", "/systemsharedmemory/status", "/%s"),
    *(f"/systemsharedmemory/region/%s/{call}" for call in ("status", "register", "unregister")),
)
_NAMES = ("next", "1", "0", "x" * 300, "..", "%2e%2e", "%00", "%ff")
# What the server answers to what is wrong.
_STATUSES = {200, 400, 404, 405, 408, 413, 415, 429, 501, 504}
_CODES = {
    *(grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED),
    *(grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.DEADLINE_EXCEEDED),
}


class FuzzedRequests:
    """Generator of random requests for a server, which checks the answers."""

    def __init__(self, seed: int, server: ServerProcess, channel: grpc.Channel) -> None:
        self.random = Random(seed)  # noqa: S311
        self._server = server
        self._channel = channel

    def send(self) -> None:
        """Send a random request. Fails if its answer is not one that the server gives on purpose."""
        ways = (self._infer, self._infer, self._call, self._corrupted, self._message, self._any_message)
        if self.random.random() < 0.02:
            self.random.choice((self._large, self._large_message))()
        self.random.choice(ways)()

    def send_sound(self) -> None:
        """Send sound requests to both faces. Fails unless they are computed."""
        for model in _SOUND:
            document, data = self._document(model)
            answer = self._post(model, json.dumps(document).encode(), data)
            assert answer.status == 200, answer
            self._answer("ModelInfer", self._infer_message(model).SerializeToString(), set())

    # ---- HTTP

    def _document(self, model: str) -> tuple[dict[str, Any], bytes]:
        """Return a sound request, and the bytes behind it."""
        names, datatype, shape, elements = _SOUND[model]
        inputs, data = [], b""
        for name in names:
            given: dict[str, Any] = {"name": name, "datatype": datatype, "shape": [*shape]}
            if self.random.random() < 0.5:
                given["data"] = [*elements]
            else:
                packed = b"".join(struct.pack(_PACKED[datatype], one) for one in elements)
                given["parameters"] = {"binary_data_size": len(packed)}
                data += packed
            inputs.append(given)
        return {"id": "7", "inputs": inputs, "outputs": [{"name": "y"}]}, data

    def _post(self, model: str, head: bytes, data: bytes) -> Answer:
        body, headers = head + data, {}
        if data:
            headers[HEADER] = str(len(head))
        if self.random.random() < 0.2:
            body, headers["Content-Encoding"] = zlib.compress(body), "deflate"
        if self.random.random() < 0.2:
            headers["Accept-Encoding"] = "gzip"
        return call(self._server.http, "POST", f"/v2/models/{model}/infer", body, headers)

    def _infer(self) -> None:
        """Send a request of which some values are changed."""
        model = self.random.choice([*_SOUND])
        document, data = self._document(model)
        for _ in range(self.random.randint(1, 4)):
            self._change(document)
        head = json.dumps(document).encode()
        if self.random.random() < 0.3:
            head = self._corrupt(head)
        if self.random.random() < 0.3:
            data = self._corrupt(data)
        _check(self._post(model, head, data))

    def _call(self) -> None:
        """Make any call with any document."""
        path = self.random.choice(_PATHS)
        while "%s" in path:
            path = path.replace("%s", self.random.choice(_NAMES), 1)
        document: dict[str, Any] = {"key": _REGION, "byte_size": 64, "ready": True, "parameters": {}}
        self._change(document)
        _check(call(self._server.http, self.random.choice(("GET", "POST", "PUT")), f"/v2{path}", document))

    def _corrupted(self) -> None:
        """Send a request of which some bytes are corrupted; any answer will do, and so does none."""
        document, data = self._document("next")
        head = json.dumps(document).encode()
        request = f"POST /v2/models/next/infer HTTP/1.1\r\nHost: h\r\n{HEADER}: {len(head)}\r\n"
        request += f"Content-Length: {len(head) + len(data)}\r\n\r\n"
        with connected(self._server.http) as connection, suppress(OSError, ValueError, EOFError):
            connection.sendall(self._corrupt(request.encode()) + head + data)
            connection.shutdown(socket.SHUT_WR)
            answered(connection)

    def _large(self) -> None:
        """Send a body that is large, or becomes so, and is nothing that a server expects."""
        part = self.random.choice((b" ", b"[", b'{"a":', b"7", b'"', b"[[],", b"\0"))
        _check(self._post("next", part * self.random.randint(1, 300_000), self.random.randbytes(3)))

    def _change(self, of: Any) -> None:
        """Change one random value within an object or a list."""
        keys = [*of] if isinstance(of, dict) else [*range(len(of))]
        inner = [of[key] for key in keys if isinstance(of[key], dict | list) and of[key]]
        if inner and self.random.random() < 0.7:
            self._change(self.random.choice(inner))
        elif isinstance(of, dict) and self.random.random() < 0.4:
            names = self.random.choices(_PARAMETERS, k=self.random.randint(1, 3))
            of["parameters"] = {name: self._value() for name in names}
        elif keys and self.random.random() < 0.2:
            del of[self.random.choice(keys)]
        elif keys:
            of[self.random.choice(keys)] = self._value()

    def _value(self) -> Any:
        value = self.random.choice((*_VALUES, _REGION))
        return [self._value() for _ in range(self.random.randint(0, 3))] if value == [] else value

    def _plain(self) -> Any:
        """Return a value that is neither true nor false, which fields of numbers don't take."""
        value = self._value()
        return int(value) if isinstance(value, bool) else value

    def _corrupt(self, given: bytes) -> bytes:
        data = bytearray(given)
        for _ in range(self.random.randint(1, 3)):
            at = self.random.randint(0, len(data))
            data[at : at + self.random.randint(0, 3)] = self.random.randbytes(self.random.randint(0, 3))
        return bytes(data)

    # ---- gRPC

    def _infer_message(self, model: str) -> Any:
        names, datatype, shape, elements = _SOUND[model]
        message = pb.ModelInferRequest(model_name=model)
        is_raw = self.random.random() < 0.5
        for name in names:
            given = message.inputs.add(name=name, datatype=datatype, shape=shape)
            if is_raw:
                message.raw_input_contents.append(b"".join(struct.pack(_PACKED[datatype], one) for one in elements))
            else:
                field = {"FP32": "fp32_contents", "INT64": "int64_contents", "BOOL": "bool_contents"}[datatype]
                getattr(given.contents, field).extend(elements)
        message.outputs.add(name="y")
        return message

    def _message(self) -> None:
        """Send a request of which some fields are changed, or its bytes corrupted."""
        message, pick = self._infer_message(self.random.choice([*_SOUND])), self.random.choice
        for _ in range(self.random.randint(1, 3)):
            one = pick([*message.inputs, *message.outputs, message])
            with suppress(OverflowError, TypeError, ValueError):  # For numbers that the field doesn't have.
                match pick(("parameter", "shape", "datatype", "contents", "raw", "name")):
                    case "parameter":
                        kind = pick(("bool_param", "int64_param", "string_param", "double_param", "uint64_param"))
                        setattr(one.parameters[pick(_PARAMETERS)], kind, self._plain())
                    case "shape" if hasattr(one, "shape"):
                        one.shape[:] = [pick(_NUMBERS) for _ in range(self.random.randint(0, 40))]
                    case "datatype" if hasattr(one, "datatype"):
                        one.datatype = pick(("", "FP16", "BYTES", "INT8", "BF16", "BOOL"))
                    case "contents" if hasattr(one, "contents"):
                        field: Any = pick(pb.InferTensorContents.DESCRIPTOR.fields)
                        getattr(one.contents, field.name).append(self._plain())
                    case "raw":
                        message.raw_input_contents.append(self.random.randbytes(pick((0, 1, 8, 12))))
                    case "name" if hasattr(one, "name"):
                        one.name = pick(("", "y", "z" * 1000))
        data = message.SerializeToString()
        self._answer("ModelInfer", self._corrupt(data) if self.random.random() < 0.3 else data, _CODES)

    def _large_message(self) -> None:
        """Send a message with a large tensor, of which the bytes around the tensor are corrupted."""
        count = self.random.randint(1, 40_000)
        message = pb.ModelInferRequest(model_name="next", raw_input_contents=[bytes(4 * count)])
        message.inputs.add(name="x", datatype="FP32", shape=[count])
        data = message.SerializeToString()
        around = len(data) - 4 * count
        self._answer("ModelInfer", self._corrupt(data[:around]) + data[around:], _CODES)
        self._answer("ModelInfer", data[:around] + self._corrupt(data[around:]), _CODES)

    def _any_message(self) -> None:
        """Send random bytes to any call."""
        names = [method.name for method in pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods]
        method = self.random.choice([name for name in names if name != "ModelStreamInfer"])
        self._answer(method, self._corrupt(b"\x0a\x04next"), _CODES)

    def _answer(self, method: str, request: bytes, codes: set[grpc.StatusCode]) -> None:
        try:
            self._channel.unary_unary(f"/{_SERVICE}/{method}")(request, timeout=_DEADLINE_S)
        except grpc.RpcError as error:
            assert error.code() in codes, error


def _check(answer: Answer) -> None:
    assert answer.status in _STATUSES, answer
    if answer.status != 200:
        assert answer.error


@contextmanager
def attacked_server() -> Iterator[tuple[ServerProcess, grpc.Channel]]:
    """Yield a server with small limits, with a daemon of its own, and a channel to it."""
    daemon = DaemonProcess("--backend", "reference")
    memory = Path("/dev/shm", _REGION)  # noqa: S108
    memory.write_bytes(np.zeros(16, np.float32).tobytes())
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name in MODELS:
                add_model(Path(folder), name)
            server = ServerProcess(Path(folder), daemon.address, *FLAGS)
            try:
                with grpc.insecure_channel(server.grpc) as channel:
                    yield server, channel
            finally:
                server.kill()
    finally:
        memory.unlink()
        daemon.kill()


@click.command()
@click.option("--seconds", type=float, default=60.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
def main(seconds: float, seed: int) -> None:
    """Send random requests to a server, and print how many."""
    ends_at, sent = time.monotonic() + seconds, 0
    with attacked_server() as (server, channel):
        for drawn in count(seed):
            if time.monotonic() > ends_at:
                break
            requests = FuzzedRequests(drawn, server, channel)
            for _ in range(200):
                requests.send()
                sent += 1
            requests.send_sound()
            assert "Traceback" not in server.log(), f"seed {drawn}: {server.log()}"
        memory = Path(f"/proc/{server.process.pid}/status").read_text().partition("VmHWM:")[2].split()[0]
    click.echo(f"{sent} requests, all answered as they should be; peak memory {int(memory) >> 10} MiB")


if __name__ == "__main__":
    main()
