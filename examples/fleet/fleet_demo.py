"""Demonstration of four daemons that one command keeps running, and of a pool that uses them: `make demo-fleet`.

Meanwhile the daemons are killed, drained and restarted. The exit status is 0 if no run failed and every answer was
right.
"""

import logging
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from dataset import load as load_digits
from host import FLEET_FILE, Host, start_host
from network import digits_model
from rich.console import Console
from screen import DeviceView, Screen, View
from traffic import Question, Traffic

from nnrt_client import Member, MemberState, Model, Pool, load

CAMERAS = 8
PICTURES_PER_S = 25.0
# Pause for the user to look at the screen.
LOOK_S = 2.0
# Time limit for a device to come back.
BACK_S = 30.0

console = Console(highlight=False)


def main() -> None:
    # Not logged, because the screen shows the state of daemons.
    logging.getLogger("nnrt_client").setLevel(logging.ERROR)
    # Ctrl-C and SIGTERM both leave the `with` below, which ends the daemons.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nnrt-")))
        console.rule("one command keeps a daemon for each device")
        console.print(f"$ nnrt-device up {FLEET_FILE.name}")
        host = stack.enter_context(start_host(folder, console.print))
        addresses, model = host.addresses, digits_model()
        questions = ask_device(model, addresses[0])
        pool = stack.enter_context(Pool(addresses))
        session = stack.enter_context(pool.load(model, replicas=len(addresses)))
        console.rule(f"{CAMERAS} cameras send {PICTURES_PER_S:g} pictures a second each, whatever happens")
        with (
            Traffic(
                lambda picture: session.run([picture])["probabilities"], questions, CAMERAS, PICTURES_PER_S
            ) as traffic,
            Screen(console, lambda: view(pool, traffic), 2 * CAMERAS * PICTURES_PER_S / len(addresses)) as screen,
        ):
            disturb(host, pool, screen.report)
    is_good = traffic.answered and not traffic.failed and not traffic.wrong
    ending = f"{traffic.failed} runs failed, {traffic.wrong} answers were wrong"
    console.print(f"{traffic.answered} pictures were classified; {ending}", style="green" if is_good else "red")
    raise SystemExit(not is_good)


def ask_device(model: Model, address: str) -> list[Question]:
    """Return held-out pictures with one device's answers, against which the pool's answers are checked."""
    pictures = load_digits().test_images[:, np.newaxis]
    with load(model, device=address) as session:
        return [(picture, session.run([picture])["probabilities"]) for picture in pictures]


def disturb(host: Host, pool: Pool, report: Callable[[str], object]) -> None:
    """Kill, drain, restart and upgrade daemons."""
    time.sleep(LOOK_S)
    for name in ("ada", "curie"):
        report(f"kill -9 {host.kill(name)}: {name} is dead; others make its runs")
    wait_until_ready(pool, report)
    time.sleep(LOOK_S)

    report("nnrt-device drain bell: it answers what it has, and gets no more")
    host.command("drain", "bell")
    time.sleep(LOOK_S)
    report("nnrt-device restart bell")
    host.command("restart", "bell")
    wait_until_ready(pool, report)

    report("nnrt-device restart --all --rolling: an upgrade, one after the other")
    host.command("restart", "--all", "--rolling")
    wait_until_ready(pool, report)
    time.sleep(LOOK_S)


def wait_until_ready(pool: Pool, report: Callable[[str], object]) -> None:
    """Wait until all devices compute runs again."""
    began = time.monotonic()
    while not all(member.state is MemberState.READY for member in pool.members()):
        if time.monotonic() > began + BACK_S:
            raise SystemExit(f"they are not back within {BACK_S:g} s: {pool.members()}")
        time.sleep(0.05)
    report(f"all make runs again, {time.monotonic() - began:.1f} s later")


def view(pool: Pool, traffic: Traffic) -> View:
    """Return what the screen shows now."""
    return View(
        [device_view(member) for member in pool.members()],
        traffic.answered,
        traffic.failed,
        1000 * float(np.percentile(traffic.latest_s or [0.0], 99)),
    )


def device_view(member: Member) -> DeviceView:
    name = member.address.rpartition("/")[2].removesuffix(".sock")
    return DeviceView(name, member.state.value, member.runs, 1000 * (member.latency_s or 0.0))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        console.print("interrupted; the daemons are stopped")
        raise SystemExit(130) from None
