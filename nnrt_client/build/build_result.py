"""Result of a build, and the site (device, session and options) that the build works on."""

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
    """Refusal of a model by a device, with the error that says why."""

    def __init__(self, error: NnrtError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Site:
    """Build task, with the device, session and options that it builds for."""

    build: BuildTask
    device: Device
    session: Session
    options: Options
    config: ModelConfig


@dataclass(frozen=True, slots=True)
class BuildResult:
    """Prepared model that a build made, and the data for the manifest of its compiled form."""

    prepared: PreparedHandle
    device: Device
    origin: Origin
    config: ModelConfig
    # SHA-256 of the graph that it was compiled from; empty for a vendor's model.
    digest: Callable[[], bytes]
    # Seconds that the build took (for a restored model, the original build); None if that isn't known.
    build_s: float | None
    # As in `BuildReport`.
    notes: Mapping[str, int]
    # Cache to write the model to; None if there is nothing to write.
    cache: Cache | None = None

    @property
    def compiled_in_s(self) -> float | None:
        """Seconds that the original build of a restored model took; None if unknown, or if this build compiled it."""
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
        """Write the cache, if there is one. Raise SaveCacheFailed if only the write fails: the model can be used."""
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
