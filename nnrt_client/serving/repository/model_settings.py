"""Settings of a model: what can't be derived from its file. They come from `model.toml`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nnrt_client.model_session.loading import LoadOptions


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Settings of a model.

    Attributes:
        replicas: Number of devices that get the model; None: all.
        most_waiting: Requests that may be under way; others are refused with Busy.
        timeout_s: Seconds that a request without a limit of its own may take.
        labels: File with a label in each line for each class, by output.
        options: Options of `load`.
    """

    replicas: int | None = None
    most_waiting: int = 1024
    timeout_s: float = 3600.0
    labels: Mapping[str, Path] = field(default_factory=dict)
    options: LoadOptions = field(default_factory=lambda: LoadOptions())
