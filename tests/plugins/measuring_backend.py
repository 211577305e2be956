"""Reference backend with an accelerator's telemetry."""

import json
from collections.abc import Mapping
from pathlib import Path

from nnrt_backend_reference.backend import ReferenceBackend

from nnrt_hdi.backend import Backend, Telemetry


class _MeasuringBackend(ReferenceBackend):
    def __init__(self, figures: Path) -> None:
        super().__init__()
        self._figures = figures

    def telemetry(self) -> Telemetry:
        return Telemetry(**json.loads(self._figures.read_text()))


def create(options: Mapping[str, str]) -> Backend:
    """Create the backend; the file of the option `figures` holds the telemetry as JSON.

    If it is a FIFO, reading the telemetry hangs.
    """
    return _MeasuringBackend(Path(options["figures"]))
