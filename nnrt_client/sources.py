"""The ways to a compiled model on a device: from a model, from a cache, and from an offline model."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import Buffer

from nnrt_client import upload
from nnrt_client.build import Build, Origin
from nnrt_client.cache import CacheDirectory, require_made_for
from nnrt_client.device import Device, Link
from nnrt_client.model import Model
from nnrt_client.options import Options
from nnrt_client.prepared import TRANSPORT_ERRORS, PreparedHandle
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.compiled import CompiledModel, Target
from nnrt_hdi.container import Part, is_packed, read
from nnrt_hdi.errors import (
    InvalidFile,
    InvalidParameter,
    InvalidPath,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    OutOfMemory,
    SaveCacheFailed,
    Unsupported,
)
from nnrt_hdi.graph import Graph

_log = logging.getLogger(__name__)

Ask = Callable[[Build, Sequence[Part], ModelConfig], Any]


class Refused(Exception):
    """The device has decided: it does not take the model."""

    def __init__(self, error: NnrtError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Site:
    """A build that has reached its device."""

    build: Build
    device: Device
    link: Link
    options: Options
    config: ModelConfig


@dataclass(frozen=True, slots=True)
class Made:
    """What a build has made, with all that its manifest says."""

    prepared: PreparedHandle
    device: Device
    origin: Origin
    config: ModelConfig
    # SHA-256 of the graph it was compiled from; empty for a vendor's model.
    digest: Callable[[], bytes]
    # What building took, now or when the cache was written; None where nobody knows.
    build_s: float | None
    # Where it is still to be written.
    cache: CacheDirectory | None = None

    @property
    def compiled_in_s(self) -> float | None:
        """What building it had taken, where its manifest says so."""
        return self.build_s if self.origin is Origin.RESTORED else None

    def exported(self, build: Build, version: int) -> CompiledModel:
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
        )

    def save(self, build: Build) -> None:
        """Write the cache. Raises SaveCacheFailed where only that fails, and the model is sound."""
        if self.cache is None:
            return
        try:
            self.cache.store(self.device, self.exported(build, self.cache.version), build.remaining_s)
        except (NnrtError, OSError) as error:
            build.check()
            self.prepared.link.connection.require_alive()
            raise SaveCacheFailed(
                f"it was not written: {error}; the model can be used", place=self.cache.place(self.device)
            ) from error
        build.progress("storing", 1.0)


@dataclass(frozen=True, slots=True)
class OfflineModel:
    """A model compiled earlier, in a file or in memory of the application's."""

    read: Callable[[], Buffer]
    place: str

    @classmethod
    def in_file(cls, path: Path) -> "OfflineModel":
        return cls(lambda: _file_data(path), f"offline model {path}")

    @classmethod
    def in_memory(cls, buffer: Buffer) -> "OfflineModel":
        return cls(lambda: buffer, "offline model")


# ---- from a model


def from_model(site: Site, model: Model, cache: CacheDirectory | None) -> Made:
    """Compile, or restore what the cache has of it. Raises Refused where the device doesn't run the model."""
    if not model.is_finished:
        raise InvalidParameter("the model is not finished; call Model.finish first")
    graph, build = model.graph, site.build
    if cache is not None and (compiled := cache.found(site.device)) is not None:
        place = cache.place(site.device)
        require_made_from(model, compiled, place)
        _require_same_options(site.options.all_set(), compiled, place)
        restored = _restored(site, compiled, upload.restore)
        if not isinstance(restored, NnrtError):
            return restored
        if isinstance(restored, OutOfMemory):
            raise Refused(_build_error(restored))
        _log.warning("%s does not take its cache any more, so it compiles: %s", site.device, restored)
        build.begin_again()
    build.progress("checking", 0.0)
    with _deciding(build):
        prepared = PreparedHandle(site.link, _prepare(build, graph, site.config), site.config.priority)
        if prepared.origin is Origin.COMPILED:
            _completed(build, prepared, "compiling")
    is_compiled = prepared.origin is Origin.COMPILED
    return Made(
        prepared=prepared,
        device=site.device,
        origin=prepared.origin,
        config=site.config,
        digest=lambda: model.digest,
        # What the daemon's store had was built some time ago, for somebody else.
        build_s=build.report(prepared.origin).total_s if is_compiled else None,
        cache=cache,
    )


def require_made_from(model: Model, compiled: CompiledModel, place: str) -> None:
    """Refuse what was compiled from another model, with InvalidFile."""
    if compiled.source_digest != model.digest:
        raise InvalidFile(
            "it is of another model; give this one a directory or a ModelName of its own, or a higher version to"
            " replace it",
            place=place,
        )


def _prepare(build: Build, graph: Graph, config: ModelConfig) -> Any:
    """Have a model compiled. A device that refuses names one reason; then it is asked for all of them."""
    try:
        return upload.prepare(build, graph, config)
    except (InvalidParameter, Unsupported, OutOfMemory) as error:
        build.check()
        answers = enumerate(upload.ask_supported(build, graph))
        reasons = [f"{graph.place(index)}: {answer.reason}" for index, answer in answers if not answer.supported]
        if not reasons:
            raise
        raise OperationFailed("the device does not run " + "; ".join(reasons)) from error


# ---- from what was compiled before


def from_directory(site: Site, cache: CacheDirectory) -> Made:
    """Restore the cache of a directory."""
    compiled = cache.found(site.device)
    place = cache.place(site.device)
    if compiled is None:
        raise InvalidParameter(f"there is none of version {cache.version}, and no model to make it from", place=place)
    return _from_cache(site, compiled, place)


def from_buffer(site: Site, buffer: Buffer) -> Made:
    """Restore an imported cache."""
    place = "imported cache"
    try:
        compiled = CompiledModel.unpacked(buffer)
        require_made_for(site.device, compiled)
    except InvalidFile as error:
        raise error.at(place) from error
    return _from_cache(site, compiled, place)


def from_offline(site: Site, offline: OfflineModel) -> Made:
    """Load an offline model: one of ours, with its I/O descriptions, or any that the device's vendor understands."""
    data = offline.read()
    if is_packed(data):
        try:
            compiled = CompiledModel.unpacked(data)
        except InvalidFile as error:
            raise error.at(offline.place) from error
        kind = Target.of(site.device.info, site.device.name)
        if compiled.target.kind != kind.kind:
            raise Refused(
                OperationFailed(
                    f"it was made for {compiled.target.describe_kind()}; {site.device.name} is {kind.describe_kind()}",
                    place=offline.place,
                )
            )
        _require_same_options(site.options, compiled, offline.place)
        made = _restored(site, compiled, upload.load_offline)
        if isinstance(made, NnrtError):
            raise Refused(_build_error(made))
        return made
    with _deciding(site.build):
        prepared = PreparedHandle(
            site.link, upload.load_offline(site.build, [Part.of(data)], site.config), site.config.priority
        )
        _completed(site.build, prepared, "restoring")
    return Made(
        prepared=prepared,
        device=site.device,
        origin=Origin.RESTORED,
        config=site.config,
        digest=lambda: b"",
        build_s=None,
    )


def _from_cache(site: Site, compiled: CompiledModel, place: str) -> Made:
    _require_same_options(site.options, compiled, place)
    made = _restored(site, compiled, upload.restore)
    if isinstance(made, OutOfMemory):
        raise Refused(_build_error(made))
    if isinstance(made, NnrtError):
        raise Refused(InvalidFile(f"the device does not take it: {made}", place=place))
    return made


def _restored(site: Site, compiled: CompiledModel, ask: Ask) -> Made | NnrtError:
    """What was compiled, on the device again; or why the device doesn't take it."""
    build = site.build
    was = compiled.config
    config = ModelConfig(was.enable_float16, was.mode, site.config.priority, was.extensions)
    build.progress("checking", 1.0)
    try:
        with _deciding(build, told=lambda error: error):
            prepared = PreparedHandle(site.link, ask(build, compiled.parts, config), config.priority)
            _completed(build, prepared, "restoring")
    except Refused as refused:
        return refused.error
    if (prepared.inputs, prepared.outputs) != (compiled.inputs, compiled.outputs):
        prepared.release()
        raise Refused(InvalidFile("the device made of it a model with other inputs or outputs than its manifest says"))
    return Made(
        prepared=prepared,
        device=site.device,
        origin=Origin.RESTORED,
        config=config,
        digest=lambda: compiled.source_digest,
        build_s=compiled.build_s,
    )


def _require_same_options(options: Options, compiled: CompiledModel, place: str) -> None:
    try:
        options.require_same(compiled.config)
    except InvalidFile as error:
        raise error.at(place) from error


def _file_data(path: Path) -> Buffer:
    place = f"offline model {path}"
    try:
        data = read(path)
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:  # Of a path with a zero byte in it.
        raise InvalidPath("there is no such file", place=place) from error
    except OSError as error:
        raise InvalidFile(f"it can't be read: {error.strerror}", place=place) from error
    if not data.nbytes:
        raise InvalidFile("it is empty", place=place)
    return data


# ---- what a device answers


def _build_error(error: NnrtError) -> NnrtError:
    """NNRt's codes for a device that refuses: what the caller can mend, else FAILED."""
    if isinstance(error, InvalidParameter | OperationForbidden | OperationFailed):
        return error
    failed = OperationFailed(error.message, place=error.place)
    failed.__cause__ = error
    return failed


@contextmanager
def _deciding(build: Build, told: Callable[[NnrtError], NnrtError] = _build_error) -> Iterator[None]:
    """Whatever goes wrong is the device's decision, unless it wasn't reached or the build was ended."""
    try:
        yield
    except TRANSPORT_ERRORS:
        raise
    except NnrtError as error:
        build.check()
        raise Refused(told(error)) from error


def _completed(build: Build, prepared: PreparedHandle, stage: str) -> None:
    """Report the end of a stage; if that ends the build, give the model back."""
    try:
        build.progress(stage, 1.0)
    except BaseException:
        prepared.release()
        raise
