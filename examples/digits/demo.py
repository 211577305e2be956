"""Demonstration of two daemons and a trained network, in which one daemon dies: `make demo`.

It starts a daemon on TCP and one on a Unix socket, lists them, classifies the held-out digits on the first, kills it
during asynchronous runs, and finishes on the other.
"""

import argparse
import os
import queue
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from dataset import load
from network import digits_model
from numpy.typing import NDArray
from processes import Started, started
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from nnrt_client import Compilation, Device, Executor, Model, NnrtError, Runtime

# Images per run.
BATCH = 25
# How often all images are sent to the daemon, and after how many results it is killed.
ROUNDS = 40
KILL_AFTER = 60

Images = NDArray[np.float32]
Probabilities = NDArray[np.float32]
SHADES = " ░▒▓█"
console = Console(highlight=False)


def main() -> None:
    # Ctrl-C and SIGTERM both leave the `with` below, which ends the daemons.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="reference", help="backend of both daemons")
    backend = parser.parse_args().backend
    digits = load()
    batches = [digits.test_images[start : start + BATCH] for start in range(0, len(digits.test_images), BATCH)]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="nnrt-"))
        console.rule("two devices, each behind a daemon of its own")
        first = stack.enter_context(daemon("digits-tcp", "127.0.0.1:0", backend))
        second = stack.enter_context(daemon("digits-unix", f"unix:{folder}/device.sock", backend))
        addresses = [first.address, second.address]
        console.print(f"$ nnrt devices {' '.join(addresses)}")
        subprocess.run([sys.executable, "-m", "nnrt_client", "devices", *addresses], check=True)

        runtime = stack.enter_context(Runtime(addresses))
        tcp, unix = runtime.devices()
        model = digits_model()
        console.rule(f"{len(digits.test_images)} held-out images, classified remotely")
        answers = classify(model, tcp, batches)
        report(np.concatenate(answers), digits.test_images, digits.test_labels)

        console.rule("the first daemon is killed in the middle of asynchronous runs")
        runs = [run % len(batches) for run in range(ROUNDS * len(batches))]
        results = run_until_death(model, tcp, first.process, [batches[batch] for batch in runs])
        left = [run for run in range(len(runs)) if run not in results]
        console.print(f"building again, on {unix.name}; {len(left)} runs are left to do")
        results |= zip(left, classify(model, unix, [batches[runs[run]] for run in left]), strict=True)
        same = all(np.array_equal(results[run], answers[batch]) for run, batch in enumerate(runs))
        console.print(f"all {len(results)} runs have ended; their answers are {'the same' if same else 'NOT the same'}")
        if not same:
            raise SystemExit(1)


@contextmanager
def daemon(name: str, listen: str, backend: str) -> Iterator[Started]:
    """Start a daemon, and show it."""
    options = ("--name", name, "--listen", listen, "--backend", backend)
    with started("nnrt_device_service", "serve", *options) as process:
        console.print(f"started {name}, process {process.process.pid}, listening on {process.address}")
        yield process


def classify(model: Model, device: Device, batches: list[Images]) -> list[Probabilities]:
    """Compile the model for a device, and run every batch on it."""
    with Compilation(model, device) as compilation:
        started = time.perf_counter()
        compilation.build()
        console.print(f"compiled for {device.name} in {(time.perf_counter() - started) * 1e3:.0f} ms")
        with Executor(compilation) as executor:
            started = time.perf_counter()
            outputs = [executor.run_sync([batch])[0] for batch in batches]
            seconds = time.perf_counter() - started
    images = sum(len(batch) for batch in batches)
    console.print(f"{images} images in {len(batches)} runs took {seconds * 1e3:.0f} ms")
    return outputs


def run_until_death(
    model: Model, device: Device, process: "subprocess.Popen[str]", batches: list[Images]
) -> dict[int, Probabilities]:
    """Start all runs at once, kill the daemon after some results, and return the results by run."""
    events: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    results = {}
    with Compilation(model, device) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            executor.set_on_run_done(lambda run, outputs, error: events.put((run, outputs[0] if outputs else error)))
            executor.set_on_service_died(lambda run: events.put((run, None)))
            for run, batch in enumerate(batches):
                executor.run_async([batch], timeout_ms=30_000, user_data=run)
            deaths = 0
            for count in range(len(batches)):
                if count == KILL_AFTER:
                    os.kill(process.pid, signal.SIGKILL)
                    killed_at = time.perf_counter()
                run, outcome = events.get(timeout=30)
                if isinstance(outcome, NnrtError):
                    raise outcome
                if outcome is None:
                    deaths += 1
                else:
                    results[run] = outcome
            notice_ms = (time.perf_counter() - killed_at) * 1e3
            console.print(
                f"killed process {process.pid}: {len(results)} runs were done, {deaths} got on_service_died, "
                f"the last one {notice_ms:.0f} ms after the kill"
            )
            try:
                executor.run_sync([batches[0]])
            except NnrtError as error:
                console.print(f"a call on the old executor raises {type(error).__name__}: {error}")
    return results


def report(probabilities: Probabilities, images: Images, labels: NDArray[np.uint8]) -> None:
    """Print the accuracy, a few digits, and some that were misread."""
    predicted = probabilities.argmax(1)
    right = predicted == labels
    console.print(f"accuracy {right.mean():.1%}: {right.sum()} of {len(labels)} right")
    shown = [*np.flatnonzero(right)[:6], *np.flatnonzero(~right)[:2]]
    console.print(Columns([drawing(images[i], probabilities[i], int(labels[i])) for i in shown]))


def drawing(image: Images, probabilities: Probabilities, label: int) -> Panel:
    """Return an 8x8 image drawn in shades, with the network's answer as title."""
    levels = (image[..., 0] * (len(SHADES) - 1)).round().astype(int)
    text = "\n".join("".join(SHADES[level] * 2 for level in row) for row in levels)
    predicted = int(probabilities.argmax())
    verdict = f"{predicted} ({probabilities[predicted]:.0%})"
    return Panel(Text(text), title=verdict if predicted == label else f"[red]{verdict}, is {label}", expand=False)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        console.print("interrupted; the daemons are stopped")
        raise SystemExit(130) from None
