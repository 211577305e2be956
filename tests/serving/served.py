"""A server of models as a process, started like an operator starts it, and models for it."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import onnx
import onnx.parser
import warm

_EXIT_S = 30.0
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


class ServerProcess:
    """Process of `nnrt serve` on free addresses, ready when the constructor returns."""

    def __init__(self, models: Path, device: str, *arguments: str, through: Sequence[str] = ()) -> None:
        """Start the server of a folder of models; `through` is a command that executes the command that follows it."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # `kill` closes it.
        self._written = ""
        command = ["serve", str(models), "--device", device, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
        self.process = warm.Popen(
            [*through, sys.executable, "-m", "nnrt_client", *command, *arguments],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=dict(os.environ),
        )
        assert self.process.stdout is not None
        # The server writes this line when it is ready. If it dies before, the pipe ends: no timeout is needed.
        ready = self.process.stdout.readline().split()
        if ready[:2] != ["listening", "on"]:
            self.kill()
            raise RuntimeError(f"the server did not start: {self.log()}")
        named = (one.split("://") for one in ready[2:])
        self._addresses = {scheme.removesuffix("s"): address for scheme, address in named}

    @property
    def http(self) -> str:
        return self._addresses["http"]

    @property
    def grpc(self) -> str:
        return self._addresses["grpc"]

    def log(self) -> str:
        """Return what the server has written to its standard error so far."""
        if not self._log.closed:
            # pread leaves the file position, which is shared with the server, unchanged.
            self._written = os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode()
        return self._written

    def stop(self) -> int:
        """Send SIGTERM, wait until the server ends, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_EXIT_S)

    def kill(self) -> None:
        """Kill the server. Idempotent."""
        self.process.kill()
        self.process.wait(_EXIT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.log()
        self._log.close()
