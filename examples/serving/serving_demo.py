"""Demonstration of a server of models on two devices: `make demo-serve`.

Clients that speak the Open Inference Protocol classify digits, while a new version of the model takes over and a daemon
is killed. The exit status is 0 if no request failed and every answer was right.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from dataset import load as load_digits
from network import digits_model
from numpy.typing import NDArray
from processes import Started, started
from rich.console import Console
from traffic import Traffic
from tritonclient.utils import InferenceServerException

from nnrt_client import OperationFailed

CLIENTS, PICTURES_PER_S = 8, 25.0
# Seconds of traffic before and after each disturbance, and the limit for a version to take over.
LOOK_S, TAKEOVER_S = 2.0, 30.0

console = Console(highlight=False)


def main() -> None:
    # Ctrl-C and SIGTERM both leave the `with` below, which ends the processes.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nnrt-")))
        models = folder / "models"
        console.rule("a folder of models, two devices, and a server")
        add_version(models, "1")
        daemons = [stack.enter_context(shown("nnrt_device_service", "serve", "--listen", "127.0.0.1:0"))]
        daemons.append(stack.enter_context(shown("nnrt_device_service", "serve", "--listen", f"unix:{folder}/device")))
        where = [word for daemon in daemons for word in ("--device", daemon.address)]
        faces = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
        http, grpc = stack.enter_context(shown("nnrt_client", "serve", str(models), *where, *faces)).addresses

        digits = load_digits()
        console.rule("any client of the protocol can use it")
        call_by_curl(http, digits.test_images[0], int(digits.test_labels[0]))

        console.rule(f"{CLIENTS} clients send {PICTURES_PER_S:g} pictures a second each")
        client = stack.enter_context(triton.InferenceServerClient(grpc.removeprefix("grpc://")))
        caller = Caller(client)
        questions = [(picture, caller.classify(picture)) for picture in digits.test_images[:, np.newaxis]]
        right = np.mean(
            [answer.argmax() == label for (_, answer), label in zip(questions, digits.test_labels, strict=True)]
        )
        console.print(f"tritonclient: {len(questions)} held-out pictures, accuracy {right:.1%}")
        with Traffic(caller.classify, questions, CLIENTS, PICTURES_PER_S) as traffic:
            disturb(models, daemons[0], caller)
        console.print(f"requests by version: {dict(caller.versions)}")
        ending = f"{traffic.failed} failed, {traffic.wrong} answers were wrong"
        is_good = traffic.answered and not traffic.failed and not traffic.wrong and set(caller.versions) == {"1", "2"}
        console.print(f"{traffic.answered} requests were answered; {ending}", style="green" if is_good else "red")
    raise SystemExit(not is_good)


@contextmanager
def shown(module: str, *arguments: str) -> Iterator[Started]:
    """Start a command, and show it."""
    with started(module, *arguments) as process:
        name = {"nnrt_client": "nnrt", "nnrt_device_service": "nnrt-device"}[module]
        where = " ".join(process.addresses)
        console.print(f"$ {name} {' '.join(arguments)}\n  process {process.process.pid}: listening on {where}")
        yield process


class Caller:
    """Caller of the server, for any number of threads. It counts which version answered."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._lock = threading.Lock()
        self.versions: Counter[str] = Counter()

    def classify(self, pictures: NDArray[np.float32]) -> NDArray[Any]:
        """Return the probabilities of pictures. Raises OperationFailed."""
        given = triton.InferInput("image", list(pictures.shape), "FP32")
        given.set_data_from_numpy(pictures)
        try:
            result = self._client.infer("digits", [given])
        except InferenceServerException as error:
            console.print(f"[red]{error}")
            raise OperationFailed(str(error)) from error
        with self._lock:
            self.versions[result.get_response().model_version] += 1
        answer: NDArray[Any] = result.as_numpy("probabilities")
        return answer


def add_version(models: Path, version: str) -> None:
    """Put a version of the model into its folder. The rename makes it appear whole."""
    made = models.parent / f"digits-{version}"
    made.mkdir(parents=True)
    digits_model().save(made / "model.nnrt")
    (models / "digits").mkdir(parents=True, exist_ok=True)
    made.rename(models / "digits" / version)


def call_by_curl(http: str, picture: NDArray[np.float32], label: int) -> None:
    """Ask for the metadata of the model and for one digit, if curl is there."""
    curl = shutil.which("curl")
    if curl is None:
        console.print("curl is not installed")
        return
    tensor = {"name": "image", "shape": [1, 8, 8, 1], "datatype": "FP32", "data": picture.ravel().tolist()}
    wanted = {"name": "probabilities", "parameters": {"classification": 2}}
    for path, body in (
        ("/v2/models/digits", None),
        ("/v2/models/digits/infer", json.dumps({"inputs": [tensor], "outputs": [wanted]})),
    ):
        data = () if body is None else ("--data-binary", "@-")
        console.print(f"$ curl {http}{path}" + (" --data @picture.json" if data else ""))
        answer = subprocess.run(
            [curl, "-sS", "--fail-with-body", f"{http}{path}", *data],
            input=body,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        console.print(f"  {answer.stdout}")
    console.print(f"  (the picture is a {label})")


def disturb(models: Path, daemon: Started, caller: Caller) -> None:
    """Upgrade the model, and kill a daemon."""
    time.sleep(LOOK_S)
    console.print("version 2 is put into the folder; it is loaded, and takes over")
    add_version(models, "2")
    seconds = wait_for(lambda: caller.versions["2"] > 0)
    console.print(f"version 2 answers, {seconds:.1f} s later")
    time.sleep(LOOK_S)
    os.kill(daemon.process.pid, signal.SIGKILL)
    console.print(f"kill -9 {daemon.process.pid}: a daemon is dead; the other one makes its runs")
    time.sleep(LOOK_S)


def wait_for(condition: Callable[[], bool]) -> float:
    """Wait until a condition holds, and return the seconds that it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() > began + TAKEOVER_S:
            raise SystemExit(f"the new version did not take over within {TAKEOVER_S:g} s")
        time.sleep(0.05)
    return time.monotonic() - began


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        console.print("interrupted; the processes are stopped")
        raise SystemExit(130) from None
