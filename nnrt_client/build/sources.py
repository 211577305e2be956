"""Sources of a build: a model to compile, or a cache or an offline model to restore."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import Buffer

from nnrt_client.build import upload
from nnrt_client.build.build_result import BuildResult, Refused, Site
from nnrt_client.build.build_task import BuildTask
from nnrt_client.build.cache import Cache, CacheDirectory, require_compiled_for, require_whole
from nnrt_client.build.options import Options
from nnrt_client.build.prepared import PreparedHandle
from nnrt_client.model.model import Model, parts_of
from nnrt_client.model.program import Program
from nnrt_client.session.device import Device
from nnrt_client.session.release import TRANSPORT_ERRORS
from nnrt_client.session.support import ask_supported
from nnrt_hdi.backend import ModelConfig, Origin
from nnrt_hdi.batching import Batching
from nnrt_hdi.errors import (
    InvalidFile,
    InvalidParameter,
    InvalidPath,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    OutOfMemory,
    Unsupported,
)
from nnrt_hdi.files.compiled import CompiledModel, Target
from nnrt_hdi.files.container import is_packed, read
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops.rows_apart import require_rows_apart
from nnrt_hdi.part import Part

_log = logging.getLogger(__name__)

Ask = Callable[[BuildTask, Sequence[Part], ModelConfig], Any]


@dataclass(frozen=True, slots=True)
class OfflineModel:
    """Model that was compiled earlier, in a file or in memory of the application."""

    read: Callable[[], Buffer]
    place: str

    @classmethod
    def in_file(cls, path: Path) -> "OfflineModel":
        """Refer to a file, which the build reads."""
        return cls(lambda: _file_data(path), f"offline model {path}")

    @classmethod
    def in_memory(cls, buffer: Buffer) -> "OfflineModel":
        """Refer to a buffer, which is not copied."""
        return cls(lambda: buffer, "offline model")


# ---- from a model


def from_model(site: Site, model: Model, cache: Cache | None) -> BuildResult:
    """Compile a model, or restore it from its cache; raise Refused if the device doesn't run it."""
    if not model.is_finished:
        raise InvalidParameter("the model is not finished; call Model.finish first")
    graph, build, batching = parts_of(model).graph, site.build, site.options.batching
    if batching is not None:
        _require_rows_apart(graph)
    if cache is not None and (compiled := cache.find(site.device)) is not None:
        place = cache.place(site.device)
        require_compiled_from(model, compiled, place)
        _require_same_options(site.options.with_neutral_values(), compiled, place)
        try:
            result = _restore(site, compiled, partial(upload.restore, batching=batching))
        except Refused as refused:
            cache.handle_refusal(site.device, compiled, refused.error)
            raise
        if not isinstance(result, NnrtError):
            return result
        if isinstance(result, OutOfMemory):
            raise Refused(_build_error(result))
        cache.handle_refusal(site.device, compiled, result)
        _log.warning("%s does not take the cached model, so it is compiled: %s", site.device, result)
        build.begin_again()
    build.progress("checking", 0.0)
    with _errors_as_refusals(build):
        prepared = PreparedHandle(site.session, _compile(build, graph, site.config, batching), site.config.priority)
        if prepared.origin is Origin.COMPILED:
            _finish_stage(build, prepared, "compiling")
    is_compiled = prepared.origin is Origin.COMPILED
    digest = model.digest  # The result must not keep the model, whose weights take memory.
    return BuildResult(
        prepared=prepared,
        device=site.device,
        origin=prepared.origin,
        config=site.config,
        digest=lambda: digest,
        # A model from the daemon's store was built earlier, perhaps for another client.
        build_s=build.report(prepared.origin).total_s if is_compiled else None,
        notes=prepared.notes,
        cache=cache,
    )


def require_compiled_from(model: Model, compiled: CompiledModel, place: str) -> None:
    """Raise InvalidFile for a model that was compiled from another model."""
    if compiled.source_digest != model.digest:
        raise InvalidFile(
            "it is of another model; give this one a directory or a ModelName of its own, or a higher version to"
            " replace it",
            place=place,
        )


def _require_rows_apart(graph: Graph) -> None:
    try:
        require_rows_apart(graph)
    except NnrtError as error:
        raise Refused(error) from error


def _compile(build: BuildTask, graph: Graph, config: ModelConfig, batching: Batching | None) -> Any:
    """Ask the device to compile a graph; if it refuses with one reason, ask for all reasons."""
    try:
        return upload.compile_graph(build, graph, config, batching)
    except (InvalidParameter, Unsupported, OutOfMemory) as error:
        build.check()
        answers = enumerate(ask_supported(build, graph))
        reasons = [f"{graph.place(index)}: {answer.reason}" for index, answer in answers if not answer.supported]
        if not reasons:
            raise
        raise OperationFailed("the device does not run " + "; ".join(reasons)) from error


# ---- from a model file of the device's own format


def from_program(site: Site, program: Program) -> BuildResult:
    """Load a model file in the device's own format; raise Refused if the device doesn't take it."""
    if program.format not in site.device.capabilities.program_formats:
        raise Refused(unsupported_program(site.device, program.format))
    with _errors_as_refusals(site.build, translate=lambda error: error):
        prepared = PreparedHandle(
            site.session,
            upload.load_program(site.build, program, site.config, site.options.batching),
            site.config.priority,
        )
        _finish_stage(site.build, prepared, "compiling")
    digest = program.digest
    return BuildResult(
        prepared=prepared,
        device=site.device,
        origin=prepared.origin,
        config=site.config,
        digest=lambda: digest,
        build_s=None,
        notes=prepared.notes,
    )


def unsupported_program(device: Device, format: str) -> Unsupported:
    """Return the error for a model file in a format that the device doesn't take as it is."""
    return Unsupported(
        f"it takes no {format} files as they are: its backend {device.info.backend_name} doesn't compute them, or its"
        " daemon's --accept-programs doesn't allow it; take a device that does",
        place=device.name,
    )


# ---- from what was compiled before


def from_directory(site: Site, cache: CacheDirectory) -> BuildResult:
    """Restore the cache in a directory."""
    compiled = cache.find(site.device)
    place = cache.place(site.device)
    if compiled is None:
        raise InvalidParameter(f"there is none of version {cache.version}, and no model to make it from", place=place)
    return _from_cache(site, compiled, place)


def from_buffer(site: Site, buffer: Buffer) -> BuildResult:
    """Restore a cache from a buffer, which the application passed to `Compilation.import_cache`."""
    place = "imported cache"
    try:
        compiled = CompiledModel.unpacked(buffer, checks_large=False)
        require_compiled_for(site.device, compiled)
    except InvalidFile as error:
        raise error.at(place) from error
    return _from_cache(site, compiled, place)


def from_offline(site: Site, offline: OfflineModel) -> BuildResult:
    """Load an offline model, which `nnrt compile` or the vendor's tools wrote.

    A file of `nnrt compile` describes its inputs and outputs. Any other file must be in a format that the device's
    backend knows.
    """
    _require_no_batching(site, offline.place)
    data = offline.read()
    if is_packed(data):
        try:
            compiled = CompiledModel.unpacked(data, checks_large=False)
        except InvalidFile as error:
            raise error.at(offline.place) from error
        kind = Target.of(site.device.info, site.device.name)
        if compiled.target.kind != kind.kind:
            raise Refused(
                OperationFailed(
                    f"it was made for {compiled.target.describe_kind()}; {site.device.name} is {kind.describe_kind()};"
                    " compile the model for it (nnrt compile)",
                    place=offline.place,
                )
            )
        _require_same_options(site.options, compiled, offline.place)
        result = _restore(site, compiled, upload.load_offline)
        if isinstance(result, InvalidFile):
            require_whole(compiled, offline.place)
        if isinstance(result, NnrtError):
            raise Refused(_build_error(result))
        return result
    with _errors_as_refusals(site.build):
        prepared = PreparedHandle(
            site.session, upload.load_offline(site.build, [Part.of(data)], site.config), site.config.priority
        )
        _finish_stage(site.build, prepared, "restoring")
    return BuildResult(
        prepared=prepared,
        device=site.device,
        origin=Origin.RESTORED,
        config=site.config,
        digest=lambda: b"",
        build_s=None,
        notes=prepared.notes,
    )


def _from_cache(site: Site, compiled: CompiledModel, place: str) -> BuildResult:
    _require_no_batching(site, place)
    _require_same_options(site.options, compiled, place)
    result = _restore(site, compiled, upload.restore)
    if isinstance(result, OutOfMemory):
        raise Refused(_build_error(result))
    if isinstance(result, InvalidFile):
        require_whole(compiled, place)
    if isinstance(result, NnrtError):
        raise Refused(InvalidFile(f"the device does not take it: {result}", place=place))
    return result


def _restore(site: Site, compiled: CompiledModel, ask: Ask) -> BuildResult | NnrtError:
    """Ask the device to load a compiled model; if it refuses, return its error instead of raising it."""
    build = site.build
    was = compiled.config
    config = ModelConfig(was.enable_float16, was.mode, site.config.priority, was.extensions)
    build.progress("checking", 1.0)
    try:
        with _errors_as_refusals(build, translate=lambda error: error):
            prepared = PreparedHandle(site.session, ask(build, compiled.parts, config), config.priority)
            _finish_stage(build, prepared, "restoring")
    except Refused as refused:
        return refused.error
    if (prepared.inputs, prepared.outputs) != (compiled.inputs, compiled.outputs):
        prepared.release()
        raise Refused(InvalidFile("the device made of it a model with other inputs or outputs than its manifest says"))
    # The result must not keep the model, whose parts take memory or a file descriptor.
    digest, notes = compiled.source_digest, compiled.notes
    return BuildResult(
        prepared=prepared,
        device=site.device,
        origin=Origin.RESTORED,
        config=config,
        digest=lambda: digest,
        build_s=compiled.build_s,
        notes=notes,
    )


def _require_no_batching(site: Site, place: str) -> None:
    if site.options.batching is not None:
        raise Refused(
            Unsupported(
                "a compiled model doesn't say whether it computes rows apart; give the model itself", place=place
            )
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
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:  # ValueError is for a path with a zero byte.
        raise InvalidPath("there is no such file", place=place) from error
    except OSError as error:
        raise InvalidFile(f"it can't be read: {error.strerror}", place=place) from error
    if not data.nbytes:
        raise InvalidFile("it is empty", place=place)
    return data


# ---- what a device answers


def _build_error(error: NnrtError) -> NnrtError:
    """Return the device's error if the caller can correct its cause, else an OperationFailed with the same message."""
    if isinstance(error, InvalidParameter | OperationForbidden | OperationFailed):
        return error
    failed = OperationFailed(error.message, place=error.place).of_request(error.request_id)
    failed.__cause__ = error
    return failed


@contextmanager
def _errors_as_refusals(build: BuildTask, translate: Callable[[NnrtError], NnrtError] = _build_error) -> Iterator[None]:
    """Raise errors of the device as Refused; let errors of the connection, and the end of the build, pass."""
    try:
        yield
    except TRANSPORT_ERRORS:
        raise
    except NnrtError as error:
        build.check()
        raise Refused(translate(error)) from error


def _finish_stage(build: BuildTask, prepared: PreparedHandle, stage: str) -> None:
    """Report the end of a stage; if that ends the build, release the model."""
    try:
        build.progress(stage, 1.0)
    except BaseException:
        prepared.release()
        raise
