"""Script that draws deploy/monitoring/dashboard.json from real measurements, as docs/assets/dashboard.svg.

    pip install -e '.[test,pictures]'
    PYTHONPATH=tests python docs/site/dashboard_picture.py

Three users run models on three daemons for a minute and a half, and a Prometheus, which must be on PATH, scrapes the
daemons. Halfway, one device computes wrong numbers for a while, and its canary takes it out of service.
"""

import json
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib as mpl
import numpy as np
from access.conftest import Access
from canary.faults import FaultyDaemon
from daemon_process import DaemonProcess
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter
from metrics.prometheus_process import PrometheusProcess, as_asked, panels
from metrics.scraping import LISTEN, metrics_address
from networks import convolution_model
from source_files import ROOT

from nnrt_client import Compilation, Executor, NnrtError, Runtime, Settings
from nnrt_hdi.backend import Telemetry

PICTURE = ROOT / "docs/assets/dashboard.svg"
SECONDS, STEP_S, TICK_S, INTERVAL = 90.0, 2.0, 30.0, "10s"
# Fractions of the time between which one device computes wrong numbers.
FAULTY = (0.5, 0.75)
COLUMNS, WIDTH_IN, ROW_IN = 24, 15.0, 0.36
UNITS = {
    "s": EngFormatter("s"),
    "bytes": EngFormatter("B"),
    "Bps": EngFormatter("B/s"),
    "ops": EngFormatter("/s"),
    "celsius": EngFormatter("°C"),
    "watt": EngFormatter("W"),
    "percentunit": FuncFormatter(lambda share, _: f"{share * 100:.2g} %"),
}


def main() -> None:
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "nnrt", "font.size": 7, "axes.titlesize": 8})
    with TemporaryDirectory() as name, ExitStack() as closing:
        folder = Path(name)
        daemons, faulty, people = start_fleet(folder, closing)
        prometheus = PrometheusProcess(folder, [metrics_address(daemon) for daemon in daemons])
        closing.callback(prometheus.close)
        began = time.time()
        use_daemons(daemons, faulty, people)
        draw(prometheus, began, time.time())


def start_fleet(folder: Path, closing: ExitStack) -> tuple[list[DaemonProcess], FaultyDaemon, dict[str, Settings]]:
    """Start the daemons, and return them, the one with the faulty device, and the settings of each user."""
    access = Access(folder)
    people = {name: access.add(name, "compile") for name in ("ada", "bob", "eve")}
    work = ("--queued-runs", "6", "--batch", "64")
    flags = (*LISTEN, "--metrics-identities", "--access", str(access.path), *work, "--name")
    store = ("--store-dir", str(folder / "store"))
    named = {name: ("--canary", "1", *store, *telemetry_flags(folder / name)) for name in ("npu0", "npu1")}
    daemons = [DaemonProcess(*more, *flags, name) for name, more in named.items()]
    faulty = FaultyDaemon(DaemonProcess, folder, *flags, "npu2", options={"ms": 8})
    daemons.append(faulty.process)
    for daemon in daemons:
        closing.callback(daemon.kill)
    return daemons, faulty, people


def telemetry_flags(folder: Path) -> tuple[str, ...]:
    """Return the flags of a daemon whose device reports made-up telemetry."""
    folder.mkdir()
    figures, (warm, power, used) = folder / "figures", np.random.default_rng(ord(folder.name[-1])).uniform(1, 2, 3)
    telemetry = Telemetry(40 * warm, 9 * power, int(used * 2**31), 2**33, 1.2e9, power / 2)
    figures.write_text(json.dumps(asdict(telemetry)))
    return ("--backend", "measuring", "--option", f"figures={figures}")


def use_daemons(daemons: Sequence[DaemonProcess], faulty: FaultyDaemon, people: dict[str, Settings]) -> None:
    """Let each user run models on each daemon at a pace of their own, and switch the fault on and off."""
    is_over = threading.Event()
    threads = [
        threading.Thread(target=use_daemon, args=(daemon, settings, 2.0 ** (index - 4), is_over))
        for daemon in daemons
        for index, settings in enumerate(people.values())
    ]
    for thread in threads:
        thread.start()
    for part, fault in zip((FAULTY[0], FAULTY[1] - FAULTY[0], 1 - FAULTY[1]), ("wrong", "", ""), strict=True):
        is_over.wait(part * SECONDS)
        faulty.switch(fault)
    is_over.set()
    for thread in threads:
        thread.join()


def use_daemon(daemon: DaemonProcess, settings: Settings, pause_s: float, is_over: threading.Event) -> None:
    """Build one model after another and run images on it, sometimes more at once than the daemon's queue takes."""
    random = np.random.default_rng(int(1 / pause_s))
    with Runtime([daemon.address], settings) as runtime:
        while not is_over.is_set():
            with (
                suppress(NnrtError),
                Compilation(convolution_model(seed=int(random.integers(9))), runtime.device()) as model,
            ):
                model.build()
                with Executor(model) as executor:
                    until = time.monotonic() + random.uniform(5, 20)
                    while time.monotonic() < until and not is_over.wait(random.exponential(pause_s)):
                        run_some(executor, random)
            is_over.wait(pause_s)


def run_some(executor: Executor, random: np.random.Generator) -> None:
    images = random.standard_normal((int(random.integers(1, 32)), 8, 8, 1), np.float32)
    runs = [executor.submit([images]) for _ in range(int(random.integers(1, 6)))]
    for run in runs:
        with suppress(NnrtError):
            run.result()


def draw(prometheus: PrometheusProcess, start: float, end: float) -> None:
    """Draw the panels in the layout of the dashboard."""
    every = panels()
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in every)
    figure = Figure(figsize=(WIDTH_IN, rows * ROW_IN))
    for panel in every:
        place = panel["gridPos"]
        left, width = place["x"] / COLUMNS, place["w"] / COLUMNS
        bottom, height = 1 - (place["y"] + place["h"]) / rows, place["h"] / rows
        axes = figure.add_axes((left + 0.045, bottom + 0.3 * height, width - 0.06, 0.55 * height))
        axes.set_title(panel["title"], loc="left")
        (draw_lines if panel["type"] == "timeseries" else draw_numbers)(axes, panel, prometheus, start, end)
    figure.savefig(PICTURE, metadata={"Date": None})


def draw_lines(axes: Any, panel: dict[str, Any], prometheus: PrometheusProcess, start: float, end: float) -> None:
    for target in panel["targets"]:
        for series in prometheus.query_range(as_asked(target["expr"], INTERVAL), start, end, STEP_S):
            times, values = np.array(series["values"], float).T
            axes.plot(times, values, linewidth=0.8, label=legend_of(target, series))
    ticks = np.arange(np.ceil(start / TICK_S), end / TICK_S) * TICK_S
    axes.set_xticks(ticks, [time.strftime("%H:%M:%S", time.gmtime(tick)) for tick in ticks])
    axes.set_xlim(start, end)
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    axes.grid(linewidth=0.3)
    defaults = panel["fieldConfig"]["defaults"]
    axes.set_ylabel(defaults["custom"]["axisLabel"], fontsize=6)
    if unit := UNITS.get(defaults["unit"]):
        axes.yaxis.set_major_formatter(unit)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=4, fontsize=5, frameon=False)


def draw_numbers(axes: Any, panel: dict[str, Any], prometheus: PrometheusProcess, start: float, end: float) -> None:
    axes.axis("off")
    shown = ".0%" if panel["fieldConfig"]["defaults"]["unit"] == "percentunit" else ".0f"
    middle = (start + end) / 2
    for place, target in enumerate(panel["targets"]):
        (series,) = prometheus.query_range(as_asked(target["expr"], INTERVAL), middle, middle, STEP_S)
        text = f"{float(series['values'][0][1]):{shown}} {target['legendFormat']}"
        axes.text(0.05 + 0.5 * place, 0.3, text, fontsize=14)


def legend_of(target: dict[str, Any], series: dict[str, Any]) -> str:
    text: str = target["legendFormat"]
    for name, value in series["metric"].items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


if __name__ == "__main__":
    main()
