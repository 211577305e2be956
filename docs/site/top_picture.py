"""Script that draws docs/assets/top.svg and top-users.svg: `nnrt top` on four daemons, of which two have failed.

PYTHONPATH=tests python docs/site/top_picture.py
"""

import io
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
from access.conftest import Access
from canary.faults import FaultyDaemon
from daemon_process import DaemonProcess
from networks import convolution_model
from repeating import repeating
from rich.console import Console, RenderableType
from waiting import until

from nnrt_client import Compilation, Device, Executor, NnrtError, Runtime, Settings
from nnrt_client.cli.sampling import Sampler
from nnrt_client.cli.top_tables import device_page, user_page
from nnrt_client.cli.top_view import NO_SESSION, OUT, View

ASSETS = Path(__file__).resolve().parents[1] / "assets"
INTERVAL_S = 2.0
COLUMNS = 150
# Of each user: name, index of a working daemon, images per run, number of concurrent runs, and timeout in ms.
USERS = (
    ("search", 0, 64, 6, 10_000),
    ("camera-7", 0, 1, 1, 10_000),
    ("camera-8", 1, 1, 1, 10_000),
    ("nightly", 1, 256, 1, 10_000),
    ("impatient", 0, 16, 1, 1),
)


@contextmanager
def keep_busy(device: Device, images: int, in_flight: int, timeout_ms: int) -> Iterator[None]:
    """Keep this number of runs under way on a device until the block ends."""
    batch = np.ones((images, 8, 8, 1), np.float32)

    with Compilation(convolution_model(), device) as compilation:
        compilation.build()
        with Executor(compilation) as executor:

            def run() -> None:
                with suppress(NnrtError):  # The run was late or refused.
                    executor.run_sync([batch], timeout_ms=timeout_ms)

            with repeating([run] * in_flight):
                yield


def draw(page: RenderableType, path: Path) -> None:
    """Write a page of `nnrt top` as an SVG without web fonts."""
    console = Console(record=True, width=COLUMNS, force_terminal=True, color_system="truecolor", file=io.StringIO())
    console.print(page)
    drawing = console.export_svg(title="nnrt top")
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawing, flags=re.DOTALL))


def main() -> None:
    """Start four daemons, put load on two, let the others fail, and draw both pages of `nnrt top`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        access = Access(folder)
        operator = access.add("operator", "administer")
        settings = {user: access.add(user, "compile") for user, *_ in USERS}

        def start(*arguments: str, listen: str = "127.0.0.1:0") -> DaemonProcess:
            daemon = DaemonProcess("--access", str(access.path), *arguments, listen=listen)
            stack.callback(daemon.kill)
            return daemon

        daemons = [start("--name", "rack7-slot0", "--queued-runs", "6"), start("--name", "rack7-slot1")]
        faulty = FaultyDaemon(start, folder, "--name", "rack8-slot0")
        gone = start("--name", "rack8-slot1")
        addresses = [*(daemon.address for daemon in daemons), faulty.address, gone.address]
        runtime = stack.enter_context(Runtime(addresses, Settings(token_file=operator.token_file, query_timeout_s=2.0)))
        runtime.devices()
        for user, at, *load in USERS:
            own = stack.enter_context(Runtime([daemons[at].address], settings[user]))
            stack.enter_context(keep_busy(own.device(), *load))
        sampler = stack.enter_context(Sampler(runtime, INTERVAL_S))
        faulty.switch("wrong")
        gone.kill()
        until(lambda: [device.status for device in View.of(sampler, addresses).devices[2:]] == [OUT, NO_SESSION])
        view = View.of(sampler, addresses)
        draw(device_page(view), ASSETS / "top.svg")
        draw(user_page(view), ASSETS / "top-users.svg")


if __name__ == "__main__":
    main()
