"""Build that has reached its device, and the result with which it ends."""

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
    """Error of a device that has decided not to take the model."""

    def __init__(self, error: NnrtError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Site:
    """Build that has reached its device, with the session and the options for that."""

    build: BuildTask
    device: Device
    session: Session
    options: Options
    config: ModelConfig


@dataclass(frozen=True, slots=True)
class BuildResult:
    """Compiled model with which a build ends, and all that its manifest says."""

    prepared: PreparedHandle
    device: Device
    origin: Origin
    config: ModelConfig
    # SHA-256 of the graph that it was compiled from; empty for a vendor's model.
    digest: Callable[[], bytes]
    # Seconds that building took, now or when the cache was written; None if that isn't known.
    build_s: float | None
    # As in `BuildReport`.
    notes: Mapping[str, int]
    # None unless it must still be written.
    cache: Cache | None = None

    @property
    def compiled_in_s(self) -> float | None:
        """Seconds that the build of a restored model once took, if its manifest says so."""
        return self.build_s if self.origin is Origin.RESTORED else None

    def export(self, build: BuildTask, version: int) -> CompiledModel:
        """Export the compiled model from the device, with its manifest."""
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
        """Write the cache; raise SaveCacheFailed if only that fails and the model can be used."""
        if self.cache is None:
            return
        try:
            self.cache.store(self.device, self.export(build, self.cache.version), build.remaining_s)
        except (NnrtError, OSError) as error:
            build.check()
            self.prepared.session.require_alive()
            raise SaveCacheFailed(
                f"it was not written: {error}; the model can be used", place=self.cache.place(self.device)
            ) from error
        build.progress("storing", 1.0)
