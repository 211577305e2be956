"""Count of the Python frames of a small run, from `Executor.run_sync` to the backend and back.

    python benchmarks/frames.py [--list]

A daemon and a client share this process, and every thread records each frame of nnrt that it enters or resumes (the
`call` events of `sys.setprofile`; before Python 3.12 a comprehension is a frame). Frames below a backend's package
count for the backend. All others count for the side that owns the thread; a thread that runs code of the daemon is the
daemon's. Shown is the run with the fewest frames of many: heartbeats fall into some runs, and after a slow run, which
profiling makes likely, the daemon uses another thread for the next.
"""

import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
from working_client import executor_of, identity

import nnrt_hdi
from nnrt_client import Settings
from nnrt_device_service.device import Device
from nnrt_device_service.settings import Settings as DaemonSettings
from nnrt_device_service.transport.server import Daemon
from nnrt_hdi.backend import load_backend

RUNS = 300
SIDES = ("client", "daemon", "backend")
_ROOT = f"{Path(nnrt_hdi.__file__).parent.parent}/"


class Entered(NamedTuple):
    """Frame that a thread entered."""

    file: str
    name: str
    # Class of the method, or empty for a function.
    owner: str
    thread: int


class Recorder:
    """Record of the frames that all threads enter and leave.

    It records fast, because after a slow run the daemon computes the next one in another thread.
    """

    def __init__(self) -> None:
        self.events: list[tuple[int, CodeType, bool]] = []
        self._owners: dict[CodeType, str] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" or event == "return":
            code = frame.f_code
            if code not in self._owners:
                owner = frame.f_locals.get("self") if code.co_filename.startswith(_ROOT) else None
                self._owners[code] = "" if owner is None else type(owner).__name__
            self.events.append((threading.get_ident(), code, event == "call"))

    def frames(self) -> dict[str, list[Entered]]:
        """Return the entered frames of nnrt by side: client, daemon or backend."""
        daemon_threads = {thread for thread, code, _ in self.events if "/nnrt_device_service/" in code.co_filename}
        sides: dict[str, list[Entered]] = {side: [] for side in SIDES}
        # Number of open backend frames per thread.
        depth: Counter[int] = Counter()
        for thread, code, begins in self.events:
            file = code.co_filename
            is_backend = "/nnrt_backend_" in file
            if begins:
                depth[thread] += is_backend
                side = "backend" if depth[thread] else "daemon" if thread in daemon_threads else "client"
                if file.startswith(_ROOT) and "/nnrt_" in file:
                    sides[side].append(Entered(file.removeprefix(_ROOT), code.co_name, self._owners[code], thread))
            else:
                depth[thread] = max(depth[thread] - is_backend, 0)
        return sides


def record_run(address: str, settings: Settings, recorder: Recorder) -> dict[str, list[Entered]]:
    """Return the frames of the 1 KB run with the fewest frames."""
    runs: list[dict[str, list[Entered]]] = []
    x = np.ones(256, np.float32)
    with executor_of(identity(), address, settings) as executor:
        for _ in range(RUNS):
            recorder.events = []
            sys.setprofile(recorder)
            executor.run_sync([x])
            sys.setprofile(None)
            _settle(recorder)
            runs.append(recorder.frames())
    return min(runs, key=lambda run: sum(map(len, run.values())))


def _settle(recorder: Recorder) -> None:
    """Wait until the threads that still finish a run enter no more frames."""
    pause, seen = threading.Event(), -1
    while seen != len(recorder.events):
        seen = len(recorder.events)
        pause.wait(0.005)


def show(carrier: str, run: dict[str, list[Entered]], lists: bool) -> None:
    print(f"{carrier}: {sum(map(len, run.values()))} frames")
    for side, frames in run.items():
        files, owners, threads = (
            len({getattr(frame, name) for frame in frames if getattr(frame, name)})
            for name in ("file", "owner", "thread")
        )
        print(f"  {side:8}{len(frames):4} frames, {files} files, {owners} classes, {threads} threads")
        if lists:
            for frame in frames:
                print(f"      {frame.file}: {frame.owner and frame.owner + '.'}{frame.name}")


def main() -> None:
    recorder = Recorder()
    # Set before any thread starts, because a thread takes the function at its start.
    threading.setprofile(recorder)
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Device(load_backend("reference"), DaemonSettings()), DaemonSettings())
        try:
            (address,) = daemon.start([f"unix:{folder}/device"])
            for carrier, settings in (("local socket", Settings()), ("gRPC", Settings(share_memory=False))):
                show(carrier, record_run(address, settings, recorder), "--list" in sys.argv)
        finally:
            daemon.stop()


if __name__ == "__main__":
    main()
