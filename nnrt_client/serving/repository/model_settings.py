"""Settings of a model: what can't be derived from its file. They come from `model.toml`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnrt_client.model_session.loading import LoadOptions
from nnrt_hdi.tensor import Shape


@dataclass(frozen=True, slots=True)
class Latest:
    """Policy that serves the newest versions that can be loaded."""

    many: int = 1


@dataclass(frozen=True, slots=True)
class Specific:
    """Policy that serves these versions."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """Bounds within which a model gets more devices when it has many requests, and fewer when it has few.

    Attributes:
        least: Smallest number of replicas.
        most: Largest number of replicas.
        requests: Requests under way per replica that are enough for it.
        up_after_s: Seconds for which there must be more before a replica is added.
        down_after_s: Seconds for which one replica less must have been enough before one is taken away.
    """

    least: int
    most: int
    requests: int = 4
    up_after_s: float = 3.0
    down_after_s: float = 60.0


@dataclass(frozen=True, slots=True)
class WarmInput:
    """Input of a warm-up run.

    Attributes:
        shape: Its shape; None: the model's, with 1 for open dimensions, or that of the file.
        content: "zeros", "random", or a .npy file.
    """

    shape: Shape | None = None
    content: str | Path = "zeros"


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Settings of a model.

    Attributes:
        file: Name of the model's file in the folder of a version; empty: the only one there.
        replicas: Number of devices that get the model; None: all.
        scale: How that number changes, if it does.
        devices: Devices that may get the model, of those of the server; empty: all.
        versions: Versions that are served; None: all.
        canary: Shares of the requests without a version that go to these versions.
        most_waiting: Requests that may be under way; others are refused with Busy.
        timeout_s: Seconds that a request without a limit of its own may take.
        labels: File with a label in each line for each class, by output.
        warm_up: Runs that a device makes before it gets requests: inputs by name.
        options: Options of `load`.
    """

    file: str = ""
    replicas: int | None = None
    scale: Scale | None = None
    devices: tuple[str, ...] = ()
    versions: Latest | Specific | None = field(default_factory=Latest)
    canary: Mapping[int, float] = field(default_factory=dict)
    most_waiting: int = 1024
    timeout_s: float = 3600.0
    labels: Mapping[str, Path] = field(default_factory=dict)
    warm_up: Sequence[Mapping[str, WarmInput]] = ()
    options: LoadOptions = field(default_factory=lambda: LoadOptions())

    @property
    def first_replicas(self) -> int | None:
        """Number of devices that get the model when it is loaded."""
        return self.replicas if self.scale is None else self.scale.least
