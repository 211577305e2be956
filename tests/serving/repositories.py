"""Repositories that change while a server serves them, and clients that see what becomes of it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from pool.load import RunningThreads
from typing_extensions import Self
from waiting import until

from serving.served import ServerProcess, add_model

# Options of a server that notices changes soon.
SOON = ("--quiet-s", "0.1", "--look-s", "1")
_TIMEOUT_S = 30.0


def add_version(folder: Path, name: str, version: int, *, weights: int = 1) -> Path:
    """Write a version whose output is its input and its number, by a rename, as operators should."""
    values = ", ".join([str(version)] * weights)
    text = f"""m (float[n, 1] x) => (float[n, {weights}] y) {{
        k = Constant<value = float[{weights}] {{{values}}}>() y = Add(x, k) }}"""
    made = add_model(folder / ".new", name, version, text).parent
    target = folder / name / str(version)
    target.parent.mkdir(exist_ok=True)
    made.rename(target)
    return target / "model.onnx"


def ask(client: triton.InferenceServerClient, model: str, version: str = "", value: float = 0.0) -> tuple[str, float]:
    """Make a request, and return the version that computed it, and the first number of the output."""
    x = triton.InferInput("x", [1, 1], "FP32")
    x.set_data_from_numpy(np.full((1, 1), value, np.float32))
    result = client.infer(model, [x], version, client_timeout=_TIMEOUT_S)
    return result.get_response().model_version, float(result.as_numpy("y")[0, 0])


class Client:
    """Client of a server. A context manager."""

    def __init__(self, server: ServerProcess) -> None:
        self.triton = triton.InferenceServerClient(server.grpc)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.triton.close()

    def ask(self, model: str, version: str = "") -> str:
        """Make a request, check the number, and return the version that computed it."""
        computed_by, number = ask(self.triton, model, version)
        assert number == float(computed_by)
        return computed_by

    def index(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Return state and reason of each version, by model and version."""
        models = self.triton.get_model_repository_index().models
        return {(one.name, one.version): (one.state, one.reason) for one in models}

    def states(self, model: str = "") -> dict[str, str]:
        """Return the states of the versions of a model, or of the models of which each has one."""
        if not model:
            return {name: state for (name, _), (state, _) in self.index().items()}
        return {version: state for (name, version), (state, _) in self.index().items() if name == model}

    def replicas(self, model: str) -> int:
        """Return the number of devices that have a model."""
        config: Any = self.triton.get_model_config(model, as_json=True)
        return int(json.loads(json.dumps(config))["config"]["instance_group"][0].get("count", 0))


class Requests(RunningThreads):
    """Threads that ask for a model without a version. `versions` has those that computed the requests, in order."""

    def __init__(self, server: ServerProcess, model: str, threads: int = 4, *, adds: bool = True) -> None:
        """Create them. With `adds`, outputs must be those of `add_version`."""
        super().__init__(threads)
        self._adds = adds
        self._address = server.grpc
        self._model = model
        self.versions: list[str] = []
        self.errors: list[BaseException] = []

    def wait_for(self, version: str) -> Sequence[str]:
        """Wait until a version computes requests."""
        until(lambda: version in self.versions[-10:] or self.errors)
        return self.versions

    def wait_for_more(self, requests: int = 50) -> None:
        """Wait until more requests have been computed."""
        wanted = len(self.versions) + requests
        until(lambda: len(self.versions) >= wanted or self.errors)

    def _run(self, number: int) -> None:
        with triton.InferenceServerClient(self._address) as client:
            while self._pause():
                try:
                    version, output = ask(client, self._model, value=float(number))
                    assert output == number + (float(version) if self._adds else 0)
                    self.versions.append(version)
                except (triton.InferenceServerException, AssertionError) as error:
                    self.errors.append(error)
                    return
