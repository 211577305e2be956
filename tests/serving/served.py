"""A server of models as a process, started like an operator starts it, and models for it."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import onnx
import onnx.parser
from logged_process import LoggedProcess

_HEADER = '<ir_version: 10, opset_import: ["": 21]>'
# Models by name, in ONNX's own notation.
MODELS = {
    "next": "next (float[n] x) => (float[n] y) { one = Constant<value = float {1}>() y = Add(x, one) }",
    "sum": "sum (float[n, 3] a, float[n, 3] b) => (float[n, 3] y, float[n, 3] z) { y = Add(a, b) z = Sub(a, b) }",
    "scores": "scores (float[n, 10] x) => (float[n, 10] y) { y = Softmax<axis = 1>(x) }",
    "int64": "int64 (int64[n] x) => (int64[n] y) { y = Add(x, x) }",
    "half": "half (float16[n] x) => (float16[n] y) { y = Add(x, x) }",
    "not": "not (bool[n] x) => (bool[n] y) { y = Not(x) }",
}


def add_model(folder: Path, name: str, version: int = 1, text: str = "") -> Path:
    """Write a version of a model, of MODELS unless a text is given, and return the path of its file."""
    path = folder / name / str(version) / "model.onnx"
    path.parent.mkdir(parents=True)
    onnx.save(onnx.parser.parse_model(text if "<ir_version" in text else _HEADER + (text or MODELS[name])), path)
    return path


class ServerProcess(LoggedProcess):
    """Process of `nnrt serve` on free addresses, ready when the constructor returns."""

    what = "the server"

    def __init__(self, models: Path, device: str, *arguments: str, through: Sequence[str] = ()) -> None:
        """Start the server of a folder of models; `through` is a command that executes the command that follows it."""
        command = ["serve", str(models), "--device", device, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
        super().__init__([*through, sys.executable, "-m", "nnrt_client", *command, *arguments], dict(os.environ))
        named = (one.split("://") for one in self.listening())
        self._addresses = {scheme.removesuffix("s"): address for scheme, address in named}

    @property
    def http(self) -> str:
        return self._addresses["http"]

    @property
    def grpc(self) -> str:
        return self._addresses["grpc"]

    def stop(self) -> int:
        """Send SIGTERM, wait until the server ends, and return its exit code."""
        self.send(signal.SIGTERM)
        return self.wait()
