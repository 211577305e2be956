"""The place of a build that has reached its device, and what it ends with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nnrt_client.build.build_task import BuildTask
from nnrt_client.build.cache import Cache
from nnrt_client.build.options import Options
from nnrt_client.build.prepared import PreparedHandle
from nnrt_client.session.device import Device
from nnrt_client.session.session import Session
from nnrt_hdi.backend import ModelConfig, Origin
from nnrt_hdi.errors import NnrtError, SaveCacheFailed
from nnrt_hdi.files.compiled import CompiledModel, Target


class Refused(Exception):
    """The device has decided: it does not take the model."""

    def __init__(self, error: NnrtError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Site:
    """The place of a build that has reached its device."""

    build: BuildTask
    device: Device
    session: Session
    options: Options
    config: ModelConfig


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The compiled model that a build ends with, and all that its manifest says."""

    prepared: PreparedHandle
    device: Device
    origin: Origin
    config: ModelConfig
    # SHA-256 of the graph it was compiled from; empty for a vendor's model.
    digest: Callable[[], bytes]
    # What building took, now or when the cache was written; None where nobody knows.
    build_s: float | None
    # As in `BuildReport`.
    notes: Mapping[str, int]
    # Where it is still to be written.
    cache: Cache | None = None

    @property
    def compiled_in_s(self) -> float | None:
        """Seconds that building it had taken, where its manifest says so."""
        return self.build_s if self.origin is Origin.RESTORED else None

    def exported(self, build: BuildTask, version: int) -> CompiledModel:
        """The compiled model with its manifest, as the device gives it."""
        return CompiledModel(
            target=Target.of(self.device.info, self.device.name),
            source_digest=self.digest(),
            config=self.config,
            inputs=self.prepared.inputs,
            outputs=self.prepared.outputs,
            version=version,
            parts=self.prepared.export(build),
            build_s=self.build_s,
            notes=self.notes,
        )

    def save(self, build: BuildTask) -> None:
        """Write the cache. Raises SaveCacheFailed where only that fails, and the model is sound."""
        if self.cache is None:
            return
        try:
            self.cache.store(self.device, self.exported(build, self.cache.version), build.remaining_s)
        except (NnrtError, OSError) as error:
            build.check()
            self.prepared.session.require_alive()
            raise SaveCacheFailed(
                f"it was not written: {error}; the model can be used", place=self.cache.place(self.device)
            ) from error
        build.progress("storing", 1.0)
