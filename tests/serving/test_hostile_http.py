"""Requests over HTTP that are wrong, too large or too slow, and clients that go away."""

import json
import os
import re
import signal
import socket
import zlib
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from metrics.scraping import LISTEN, scraped, value
from waiting import until

from serving.conftest import StartServer
from serving.faces import face_of
from serving.raw_http import Answer, answered, call, connected
from serving.served import ServerProcess

INFER = "/v2/models/next/infer"
HEADER = "Inference-Header-Content-Length"
X = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}
BYTES_OF_X = np.array([1, 2], np.float32).tobytes()


def changed(**fields: Any) -> dict[str, Any]:
    """A request whose only input has some other fields. A field that is ... is left out."""
    return {"inputs": [{name: value for name, value in (X | fields).items() if value is not ...}]}


def with_bytes(document: Any, data: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a body and its headers, with bytes behind the JSON."""
    head = json.dumps(document).encode()
    return head + data, {HEADER: str(len(head))}


def binary(size: Any) -> dict[str, Any]:
    return changed(data=..., parameters={"binary_data_size": size})


@pytest.fixture
def infer(shared_server: ServerProcess) -> Any:
    """Function that sends a request for a model."""

    def send(body: Any, headers: dict[str, str] | None = None, model: str = "next") -> Answer:
        return call(shared_server.http, "POST", f"/v2/models/{model}/infer", body, headers)

    return send


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"shape": [2], "data": [1.0, 2e0]},
        {"parameters": None},
        {"colour": "red"},
        {"shape": [0], "data": []},
    ],
)
def test_requests_that_are_right(infer: Any, fields: dict[str, Any]) -> None:
    """Fields that nobody knows, and those that are null, are as if they were not there."""
    answer = infer({"id": None, "outputs": None, "model_name": "next", **changed(**fields)})
    assert answer.status == 200
    (output,) = answer.json["outputs"]
    given = fields.get("data", X["data"])
    assert output == {"name": "y", "datatype": "FP32", "shape": [len(given)], "data": [one + 1 for one in given]}


def test_nested_data(infer: Any) -> None:
    ab = [{"name": name, "datatype": "FP32", "shape": [2, 3], "data": [[1, 2, 3], [4, 5, 6]]} for name in "ab"]
    assert infer({"inputs": ab}, model="sum").json["outputs"][0]["data"] == [2, 4, 6, 8, 10, 12]
    for data in ([[1, 2], [3, 4], [5, 6]], [[1, 2, 3], [4, 5]], [[1, 2, 3], 4], [[[1, 2, 3], [4, 5, 6]]]):
        ab[1]["data"] = data
        assert "isn't nested as its shape [2, 3] says" in infer({"inputs": ab}, model="sum").error


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "the request is no JSON"),
        (b"\xff", "the request is no JSON"),
        (b"[1]", "the JSON is list; use an object"),
        (b"7" * 5000, "the request is no JSON"),
        (b"[" * 100_000, "the JSON is nested too deeply"),
        (b'{"inputs":' * 100_000, "the JSON is nested too deeply"),
        (b"", "the field 'inputs' is missing"),
        ({"inputs": {}}, "the field 'inputs' is dict; use a list"),
        ({"inputs": [7]}, "inputs[0] is int; use an object"),
        ({"inputs": []}, "the inputs ['x'] are missing"),
        ({"inputs": [X, X]}, "it is given twice"),
        ({"inputs": [X], "outputs": [{}]}, "outputs: the field 'name' is missing"),
        ({"inputs": [X], "outputs": [{"name": "z"}]}, "there is no output 'z'"),
        ({"inputs": [X], "outputs": [{"name": "y"}] * 2}, "output 'y': it is asked for twice"),
        ({"inputs": [X], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]}, "use true or false"),
        ({"inputs": [X], "outputs": [{"name": "y", "parameters": {"classification": -1}}]}, "use a whole number"),
        ({"inputs": [X], "parameters": []}, "the field 'parameters' is list; use an object"),
        ({"inputs": [X], "parameters": {"a": [1]}}, "the parameter 'a' is list or too large"),
        (b'{"inputs":[],"parameters":{"a":1e999}}', "the parameter 'a' is float or too large"),
        ({"inputs": [X], "parameters": {"timeout": 10**400}}, "the parameter 'timeout' is int or too large"),
        ({"inputs": [X], "parameters": {"timeout": -1}}, "use microseconds"),
        ({"inputs": [X], "parameters": {"binary_data_output": "yes"}}, "use true or false"),
        ({"inputs": [X], "id": 7}, "the field 'id' is int; use a string"),
        (changed(name=...), "inputs[0]: the field 'name' is missing"),
        (changed(name="\ud800"), "there is no input '\\ud800'"),
        (changed(datatype=...), "input 'x': the field 'datatype' is missing"),
        (changed(datatype="FP8"), "the datatype is 'FP8'; use one of BOOL"),
        (changed(shape=...), "input 'x': the field 'shape' is missing"),
        (changed(shape=[-2]), "dimensions are 0 or more"),
        (changed(shape=[2.0]), "has other elements than whole numbers"),
        (changed(shape=[True]), "has other elements than whole numbers"),
        (changed(shape=[1] * 33), "there are 33 dimensions; use at most 32"),
        (changed(shape=[0, 1 << 62], data=[]), "use at most"),
        (changed(shape=[10**300], data=[]), "use at most"),
        (changed(shape=[3]), "it has 2 elements; its shape [3] takes 3"),
        (changed(data=...), "it has 0 of the field data"),
        (changed(data="ab"), "its data is str; use a list"),
        (changed(data=[1, "2"]), "elements of type str; FP32 takes numbers"),
        (changed(data=[1, True]), "elements of type bool; FP32 takes numbers"),
        (changed(data=[1, None]), "elements of type NoneType; FP32 takes numbers"),
        (changed(data=[1, 1e39]), "too large for FP32"),
        (changed(data=[1, 10**400]), "too large for FP32"),
        (b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1e999]}]}', "too large for FP32"),
        (changed(data=[1, float("nan")]), "NaN is no number of JSON"),
        (changed(data=[1, float("-inf")]), "-Infinity is no number of JSON"),
        (changed(datatype="INT8", data=[1, 128]), "not all from -128 to 127, as INT8 needs"),
        (changed(datatype="UINT64", data=[-1, 1]), "as UINT64 needs"),
        (changed(datatype="INT64", data=[1, 2.0]), "elements of type float; INT64 takes whole numbers"),
        (changed(datatype="BOOL", data=[0, 1]), "elements of type int; BOOL takes true and false"),
        (changed(datatype="BYTES", shape=[1 << 21], data=[]), "use at most 1048576 elements of BYTES"),
        (changed(datatype="BYTES", data=["a", 1]), "elements of type int; BYTES takes strings"),
        (changed(datatype="BYTES", data=["a", "\ud800"]), "a string that is no Unicode text"),
        (changed(parameters={"shared_memory_region": 7}), "use the name of a region"),
        (binary(8), "8; 0 bytes are left behind the JSON"),
        (binary(-8), "the parameter binary_data_size is -8"),
        (binary("8"), "the parameter binary_data_size is '8'"),
    ],
)
def test_wrong_requests(infer: Any, body: Any, said: str) -> None:
    answer = infer(body)
    assert answer.status == 400
    assert said in answer.error


@pytest.mark.parametrize(
    ("document", "data", "said"),
    [
        (binary(7), BYTES_OF_X[:7], "it has 7 bytes; FP32[2] takes 8"),
        (binary(9), BYTES_OF_X, "9; 8 bytes are left behind the JSON"),
        (binary(8), BYTES_OF_X + b"z", "1 bytes follow the JSON that belong to no input"),
        (changed(), BYTES_OF_X, "8 bytes follow the JSON"),
        (changed(parameters={"binary_data_size": 8}), BYTES_OF_X, "it has 2 of the field data"),
        (changed(datatype="BYTES", data=..., parameters={"binary_data_size": 8}), b"\xff" * 8, "no 2 strings"),
    ],
)
def test_wrong_bytes(infer: Any, document: Any, data: bytes, said: str) -> None:
    answer = infer(*with_bytes(document, data))
    assert answer.status == 400
    assert said in answer.error


@pytest.mark.parametrize("value", ["-1", "x", "1.0", "9" * 19, "", "1000", "٣"])
def test_wrong_lengths_of_the_json(infer: Any, value: str) -> None:
    answer = infer(binary(8), {HEADER: value.encode().decode("latin-1")})
    assert answer.status == 400
    assert "JSON has 1000 bytes" in answer.error or "inference-header-content-length is" in answer.error


def test_bools_other_than_0_and_1(infer: Any) -> None:
    given = changed(datatype="BOOL", data=..., parameters={"binary_data_size": 2})
    assert infer(*with_bytes(given, b"\1\0"), model="not").json["outputs"][0]["data"] == [False, True]
    assert "bytes other than 0 and 1" in infer(*with_bytes(given, b"\1\2"), model="not").error


def test_outputs_that_json_cannot_tell(infer: Any) -> None:
    given = changed(data=..., parameters={"binary_data_size": 8})
    answer = infer(*with_bytes(given, np.array([np.nan, 1], np.float32).tobytes()))
    assert answer.status == 400
    assert "which JSON can't tell; ask for binary data" in answer.error
    count = (1 << 22) + 1
    given = changed(shape=[count], data=..., parameters={"binary_data_size": 4 * count})
    assert "it has 4194305 elements; ask for binary data" in infer(*with_bytes(given, bytes(4 * count))).error


def test_classes_of_a_large_output(infer: Any) -> None:
    rows = 110_000
    x = {"name": "x", "datatype": "FP32", "shape": [rows, 10], "parameters": {"binary_data_size": 40 * rows}}
    for classes, is_right in ((1, True), (10, False)):
        wanted = {"name": "y", "parameters": {"classification": classes}}
        answer = infer(*with_bytes({"inputs": [x], "outputs": [wanted]}, bytes(40 * rows)), model="scores")
        if is_right:
            assert set(answer.json["outputs"][0]["data"]) == {"0.100000:0"}
        else:
            assert "use at most 1048576" in answer.error


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v2/nothing", 404),
        ("GET", "/v2/models/..%2f..%2fetc", 404),
        ("GET", "/v2/models/%ff", 404),
        ("GET", "/v2/models/next/versions/1/nothing", 404),
        ("GET", INFER, 405),
        ("POST", "/v2/health/live", 405),
        ("PUT", "/v2", 405),
    ],
)
def test_unknown_paths_and_methods(shared_server: ServerProcess, method: str, path: str, status: int) -> None:
    answer = call(shared_server.http, method, path)
    assert answer.status == status
    assert answer.error


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_bodies_that_are_not_compressed_as_they_say(infer: Any, encoding: str) -> None:
    compressing = zlib.compressobj(wbits=31 if encoding == "gzip" else 15)
    right = compressing.compress(json.dumps(changed()).encode()) + compressing.flush()
    header = {"Content-Encoding": encoding}
    assert infer(right, header).status == 200
    for wrong, said in (
        (b"nonsense", f"the body is no {encoding}"),
        (right[:-1], f"the {encoding} body has no end"),
        (right + b"x", f"bytes follow the end of the {encoding} body"),
        (b"", f"the {encoding} body has no end"),
    ):
        answer = infer(wrong, header)
        assert answer.status == 400
        assert said in answer.error
    assert infer(right, {"Content-Encoding": "br"}).status == 415


def test_limits_of_bytes(start_server: StartServer, models: Path) -> None:
    """They are kept before a body is read; an inflated body counts with its bytes."""
    server = start_server(models, "--request-bytes", "10000", "--held-bytes", "12000")
    head = f"POST {INFER} HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n".encode()
    with connected(server.http) as large, connected(server.http) as first, connected(server.http) as second:
        large.sendall(head % 10001)
        answer = answered(large)
        assert answer.status == 413
        assert "use at most 10000" in answer.error
        first.sendall(head % 9000)
        first.sendall(b"[" * 8999)
        until(lambda: call(server.http, "POST", INFER, b" " * 4000).status == 429)
        second.sendall(head % 4000)
        answer = answered(second)
        assert answer.status == 429
        assert answer.headers["retry-after"] == "1"
        assert "hold 9000 bytes" in answer.error
        first.sendall(b"[")
        assert answered(first).status == 400
    with connected(server.http) as leaving:
        leaving.sendall(head % 9000 + b"[")
        until(lambda: call(server.http, "POST", INFER, b" " * 4000).status == 429)
    until(lambda: call(server.http, "POST", INFER, b" " * 4000).status == 400)
    bomb = zlib.compress(bytes(1 << 20))
    assert call(server.http, "POST", INFER, bomb, {"Content-Encoding": "deflate"}).status == 413
    with connected(server.http) as chunked:
        chunked.sendall(f"POST {INFER} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        chunked.sendall(b"1000\r\n" + b" " * 0x1000 + b"\r\n")
        chunked.sendall(b"2000\r\n" + b" " * 0x2000 + b"\r\n")
        assert answered(chunked).status == 413
    assert call(server.http, "POST", INFER, changed()).status == 200


@pytest.mark.slow
def test_slow_clients(start_server: StartServer, models: Path) -> None:
    """One that sends no head is hung up on, one that sends no body is told so, and one that reads nothing is left."""
    server = start_server(models, "--read-s", "0.3")
    head = f"POST {INFER} HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n".encode()
    with connected(server.http) as silent, connected(server.http) as headless, connected(server.http) as slow:
        headless.sendall(head[:10])
        slow.sendall(head + b"{")
        answer = answered(slow)
        assert answer.status == 408
        assert answer.error == "the body comes too slowly"
        for one in (silent, headless, slow):
            assert one.recv(1) == b""
    count = 4 << 20
    given = changed(shape=[count], data=..., parameters={"binary_data_size": 4 * count})
    given["parameters"] = {"binary_data_output": True}
    body, headers = with_bytes(given, bytes(4 * count))
    request = f"POST {INFER} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n{HEADER}: {headers[HEADER]}\r\n\r\n"
    with connected(server.http) as unread:
        unread.sendall(request.encode() + body)
        until(lambda: b" 01 " not in _states(unread))
    assert call(server.http, "POST", INFER, changed()).status == 200


@pytest.mark.slow
def test_more_connections_than_the_server_takes(shared_daemon: DaemonProcess, models: Path) -> None:
    """They are closed at once, and gRPC still has descriptors."""
    most = 75
    through = ("prlimit", f"--nofile={2 * most}:{2 * most}")
    server = ServerProcess(models, shared_daemon.address, through=through)
    try:
        with ExitStack() as stack:
            for _ in range(most):
                stack.enter_context(connected(server.http))
            for _ in range(most):
                assert _is_closed(stack.enter_context(connected(server.http)))
            with face_of("grpc", server) as face:
                assert face.client.infer("next", [face.input("x", np.zeros(1, np.float32))])
        until(lambda: not _is_refused(server.http))
        assert "Traceback" not in server.log()
    finally:
        server.kill()


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def _is_refused(address: str) -> bool:
    try:
        return call(address, "GET", "/v2").status != 200
    except (ConnectionError, HTTPException):
        return True


def _states(connection: Any) -> bytes:
    """Return the kernel's line for this end of a connection, whose state 01 is an established one."""
    port = f":{connection.getsockname()[1]:04X} "
    lines = Path("/proc/net/tcp").read_text().splitlines()
    return next((line.encode() for line in lines if port in line.split(maxsplit=2)[1] + " "), b"")


@pytest.mark.parametrize(
    "head",
    [
        b"nonsense\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: h\r\nHost: g\r\n\r\n",
        b"POST /v2/models/next/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /v2/models/next/infer HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        b"POST /v2/models/next/infer HTTP/1.1\r\nHost: h\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
        b"POST /v2/models/next/infer HTTP/1.1\r\nHost: h\r\n" + f"{HEADER}: 1\r\n{HEADER}: 2\r\n\r\n".encode(),
        b"POST /v2/models/next/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_heads_that_are_wrong(shared_server: ServerProcess, head: bytes) -> None:
    with connected(shared_server.http) as connection:
        connection.sendall(head)
        answer = answered(connection)
        assert answer.status in (400, 413)
        assert answer.error


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_with_two_lengths(shared_server: ServerProcess, method: str) -> None:
    """A proxy in front may believe in the other, so nothing that follows is taken for a request."""
    head = f"{method} /v2 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with connected(shared_server.http) as connection:
        connection.sendall(head.encode() + b"GET /v2 HTTP/1.1\r\nHost: h\r\n\r\n")
        told = connection.makefile("rb").read()
    assert told.startswith(b"HTTP/1.1 400 ")
    assert told.count(b"HTTP/1.1") == 1


def test_pipelined_requests(shared_server: ServerProcess) -> None:
    """They are answered in their order."""
    body = json.dumps(changed()).encode()
    post = f"POST {INFER} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    last = b"GET /v2/health/live HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    with connected(shared_server.http) as connection:
        connection.sendall((post + b"GET /v2 HTTP/1.1\r\nHost: h\r\n\r\n") * 3 + last)
        told = connection.makefile("rb").read()
    assert re.findall(b'"outputs"|"extensions"|"live"', told) == [b'"outputs"', b'"extensions"'] * 3 + [b'"live"']


def test_a_body_that_waits_to_be_asked_for(shared_server: ServerProcess) -> None:
    with connected(shared_server.http) as connection:
        body = json.dumps(changed()).encode()
        head = f"POST {INFER} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert answered(connection).status == 200


def test_a_client_that_goes_away_cancels_its_run(
    start_daemon: StartDaemon, start_server: StartServer, models: Path
) -> None:
    daemon = start_daemon(*LISTEN, "--backend", "slow")
    server = start_server(models, device=daemon.address)
    body = json.dumps(changed()).encode()
    with connected(server.http) as connection:
        connection.sendall(f"POST {INFER} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        until(lambda: "run started" in daemon.log())
    until(lambda: value(scraped(daemon), "nnrt_device_runs_total", result="cancelled") == 1)
    answer = call(server.http, "POST", INFER, {**changed(), "parameters": {"timeout": 1000}})
    assert answer.status == 504
    assert answer.error


def test_a_server_that_stops_ends_its_requests(
    start_daemon: StartDaemon, start_server: StartServer, models: Path, tmp_path: Path
) -> None:
    """It takes no more, and idle connections don't hold it up."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}")
    server = start_server(models, device=daemon.address)
    body = json.dumps(changed()).encode()
    with connected(server.http) as connection, connected(server.http):
        connection.sendall(f"POST {INFER} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        until(lambda: "run started" in daemon.log())
        server.process.send_signal(signal.SIGTERM)
        until(lambda: not _listens(server.http))
        gate.write_bytes(b"")
        assert answered(connection).json["outputs"][0]["data"] == [1, 2]
        assert connection.recv(1) == b""
    assert server.stop() == 0


def _listens(address: str) -> bool:
    try:
        with connected(address):
            return True
    except ConnectionRefusedError:
        return False
