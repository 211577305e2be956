"""Cases of section 9: compilations and Build."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from waiting import until

from nnrt_client.oh_nn import *
from oh_nn.case import case, cases
from oh_nn.cases_descriptions import UNKNOWN_ID
from oh_nn.world import World, X, floats, ok

NO_VERSION = 2**32 - 1


def _on(backend: str, body: Callable[[World], Any]) -> Callable[[World], Any]:
    """Return the case's body, preceded by a connection to a device."""

    def connected(world: World) -> Any:
        world.connect(backend)
        return body(world)

    return connected


def _sealed(world: World) -> Any:
    world.connect("reference")
    return world.built()


def _failed(world: World) -> Any:
    """Return a compilation that the device has refused."""
    compilation = world.faulty("prepare")
    assert OH_NNCompilation_Build(compilation) == OH_NN_FAILED
    return compilation


cases("9.1-1", lambda world: OH_NNCompilation_ConstructWithOfflineModelBuffer(b""))
cases("9.2-1", lambda world: OH_NNCompilation_SetDevice(_sealed(world), 0))
cases(
    "9.2-2",
    lambda world: OH_NNCompilation_SetDevice(world.compilation(), UNKNOWN_ID),
    _on("reference", lambda world: OH_NNCompilation_SetDevice(world.compilation(), UNKNOWN_ID)),
)

# ---- 9.3 to 9.5: options. The silent backend has no capability.

cases("9.3-1", lambda world: OH_NNCompilation_SetPerformanceMode(_sealed(world), OH_NN_PERFORMANCE_NONE))
cases("9.4-1", lambda world: OH_NNCompilation_SetPriority(_sealed(world), OH_NN_PRIORITY_NONE))
cases("9.5-1", lambda world: OH_NNCompilation_EnableFloat16(_sealed(world), False))
cases(
    "9.3-2",
    _on("silent", lambda world: OH_NNCompilation_SetPerformanceMode(world.compilation(), OH_NN_PERFORMANCE_LOW)),
    _on("silent", lambda world: OH_NNCompilation_SetPerformanceMode(world.compilation(), 99)),
)
cases("9.4-2", _on("silent", lambda world: OH_NNCompilation_SetPriority(world.compilation(), OH_NN_PRIORITY_HIGH)))
cases("9.5-2", _on("silent", lambda world: OH_NNCompilation_EnableFloat16(world.compilation(), True)))
cases(
    "9.3-3",
    _on("silent", lambda world: OH_NNCompilation_SetPerformanceMode(world.compilation(), OH_NN_PERFORMANCE_NONE)),
)
cases("9.4-3", _on("silent", lambda world: OH_NNCompilation_SetPriority(world.compilation(), OH_NN_PRIORITY_NONE)))
cases("9.5-3", _on("silent", lambda world: OH_NNCompilation_EnableFloat16(world.compilation(), False)))
cases("9.3-4", _on("faulty", lambda world: OH_NNCompilation_SetPerformanceMode(world.compilation(), 99)))
cases("9.4-4", _on("faulty", lambda world: OH_NNCompilation_SetPriority(world.compilation(), -1)))
cases("9.3-5", lambda world: OH_NNCompilation_SetPerformanceMode(world.compilation(), OH_NN_PERFORMANCE_LOW))
cases("9.4-5", lambda world: OH_NNCompilation_SetPriority(world.compilation(), OH_NN_PRIORITY_HIGH))
cases("9.5-4", lambda world: OH_NNCompilation_EnableFloat16(world.compilation(), True))

# ---- 9.6 SetCache


def _set_cache(world: World, version: int = 1, directory: Path | None = None) -> Any:
    return OH_NNCompilation_SetCache(world.compilation(), str(directory or world.directory), version)


def _cached(world: World, version: int = 1) -> Path:
    world.connect("reference")
    return world.cached(version)


cases("9.6-0", lambda world: OH_NNCompilation_SetCache(_sealed(world), str(world.directory), 1))
cases("9.6-1", _on("reference", _set_cache))


@case("9.6-1")
def _(world: World) -> Any:
    """Build writes the cache, from which a compilation without a model can be built."""
    world.connect("reference")
    world.cached(version=7)
    restored = world.for_cache()
    answer = OH_NNCompilation_SetCache(restored, str(world.directory), 7)
    ok(OH_NNCompilation_Build(restored))
    return answer


@case("9.6-2")
def _(world: World) -> Any:
    """Build doesn't change the cache."""
    file = _cached(world, version=3)
    before = file.stat().st_mtime_ns
    compilation = world.compilation()
    answer = OH_NNCompilation_SetCache(compilation, str(world.directory), 3)
    ok(OH_NNCompilation_Build(compilation))
    assert file.stat().st_mtime_ns == before
    return answer


@case("9.6-3")
def _(world: World) -> Any:
    """Build replaces the cache by one of the later version."""
    _cached(world, version=3)
    compilation = world.compilation()
    answer = OH_NNCompilation_SetCache(compilation, str(world.directory), 4)
    ok(OH_NNCompilation_Build(compilation))
    assert _set_cache(world, version=3) == OH_NN_INVALID_PARAMETER
    return answer


@case("9.6-4")
def _(world: World) -> Any:
    """Build ignores the refused SetCache, and doesn't change the cache."""
    before = _cached(world, version=3).read_bytes()
    compilation = world.compilation()
    answer = OH_NNCompilation_SetCache(compilation, str(world.directory), 2)
    ok(OH_NNCompilation_Build(compilation))
    assert _cached_bytes(world) == [before]
    return answer


def _cached_bytes(world: World) -> list[bytes]:
    return [path.read_bytes() for path in world.directory.rglob("*") if path.is_file()]


def _flipped(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def _cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def _emptied(file: Path) -> None:
    os.truncate(file, 0)


def _replaced_by_a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _after(damage: Callable[[Path], None]) -> Callable[[World], Any]:
    def body(world: World) -> Any:
        """Build ignores the refused SetCache, and doesn't change the damaged file."""
        damage(_cached(world))
        before = _cached_bytes(world)
        compilation = world.compilation()
        answer = OH_NNCompilation_SetCache(compilation, str(world.directory), 1)
        ok(OH_NNCompilation_Build(compilation))
        assert _cached_bytes(world) == before
        return answer

    return body


cases("9.6-5", *map(_after, (_flipped, _cut, _emptied, _replaced_by_a_directory)))


@case("9.6-5")
def _(world: World) -> Any:
    """A device finds another device's cache at its path."""
    file = _cached(world)
    world.connect("faulty")
    compilation = world.compilation()
    ok(OH_NNCompilation_SetCache(compilation, str(world.directory), 1))
    ok(OH_NNCompilation_Build(compilation))
    (other,) = (path for path in world.directory.rglob(file.name) if path != file)
    file.replace(other)
    return _set_cache(world)


cases(
    "9.6-6",
    _on("reference", lambda world: _set_cache(world, directory=world.directory / "missing")),
    _on("reference", lambda world: _set_cache(world, directory=Path(__file__))),
    _on("reference", lambda world: OH_NNCompilation_SetCache(world.compilation(), "", 1)),
    lambda world: _set_cache(world, directory=world.directory / "missing"),
)


@case("9.6-7")
def _(world: World) -> Any:
    _flipped(_cached(world, version=9))
    return _set_cache(world, version=1)


cases("9.6-8", _on("silent", _set_cache))


@case("9.6-9")
def _(world: World) -> Any:
    world.connect("reference")
    (world.directory / "notes.txt").write_text("not a cache")
    return _set_cache(world)


# ---- 9.7 and 9.8: caches in buffers

cases("9.7-1", lambda world: OH_NNCompilation_ImportCacheFromBuffer(world.for_cache(), b""))
cases("9.7-2", lambda world: OH_NNCompilation_ImportCacheFromBuffer(_sealed(world), b"cache"))
cases("9.7-3", lambda world: OH_NNCompilation_ImportCacheFromBuffer(world.compilation(), b"cache"))

cases("9.8-1", lambda world: OH_NNCompilation_ExportCacheToBuffer(_sealed(world), bytearray()))
cases(
    "9.8-2",
    lambda world: OH_NNCompilation_ExportCacheToBuffer(world.compilation(), bytearray(9)),
    lambda world: OH_NNCompilation_ExportCacheToBuffer(_failed(world), bytearray(9)),
)
cases("9.8-3", _on("silent", lambda world: OH_NNCompilation_ExportCacheToBuffer(world.built(), bytearray(9))))


@case("9.8-4")
def _(world: World) -> Any:
    compilation = world.faulty("export")
    ok(OH_NNCompilation_Build(compilation))
    return OH_NNCompilation_ExportCacheToBuffer(compilation, bytearray(9))


@case("9.8-5")
def _(world: World) -> Any:
    compilation = _sealed(world)
    needed = len(world.exported(compilation))
    buffer = bytearray(needed - 1)
    answer = OH_NNCompilation_ExportCacheToBuffer(compilation, buffer)
    assert (answer[1], any(buffer)) == (needed, False)
    # Like a C program, export again with the size from the first call.
    assert OH_NNCompilation_ExportCacheToBuffer(compilation, bytearray(needed)) == (OH_NN_SUCCESS, needed)
    return answer


# ---- 9.9 AddExtensionConfig

cases("9.9-1", lambda world: OH_NNCompilation_AddExtensionConfig(world.compilation(), "", b"value"))
cases("9.9-2", lambda world: OH_NNCompilation_AddExtensionConfig(world.compilation(), "name", b""))
cases("9.9-3", lambda world: OH_NNCompilation_AddExtensionConfig(_sealed(world), "name", b"value"))
cases("9.9-4", lambda world: OH_NNCompilation_AddExtensionConfig(world.compilation(), "isProfiling", b"1"))

# ---- 9.10 Build


def _build(*arrange: Callable[[Any], Any], backend: str = "reference") -> Callable[[World], Any]:
    """Return a body that builds a valid model after these steps, which must succeed."""

    def body(world: World) -> Any:
        world.connect(backend)
        compilation = world.compilation()
        for step in arrange:
            ok(step(compilation))
        return OH_NNCompilation_Build(compilation)

    return body


cases(
    "9.10-2", lambda world: OH_NNCompilation_Build(_sealed(world)), lambda world: OH_NNCompilation_Build(_failed(world))
)


@case("9.10-3a")
def _(world: World) -> Any:
    world.connect("reference")
    cache = world.exported()
    return _build(lambda compilation: OH_NNCompilation_ImportCacheFromBuffer(compilation, cache))(world)


@case("9.10-3a")
def _(world: World) -> Any:
    world.connect("reference")
    cache = world.exported()
    offline = world.offline_buffer(cache)
    ok(OH_NNCompilation_ImportCacheFromBuffer(offline, cache))
    return OH_NNCompilation_Build(offline)


@case("9.10-3a")
def _(world: World) -> Any:
    world.connect("reference")
    cache = world.exported()
    restored = world.for_cache()
    ok(OH_NNCompilation_SetCache(restored, str(world.directory), 1))
    ok(OH_NNCompilation_ImportCacheFromBuffer(restored, cache))
    return OH_NNCompilation_Build(restored)


cases("9.10-3b", _on("reference", lambda world: OH_NNCompilation_Build(world.for_cache())))
cases(
    "9.10-4",
    lambda world: OH_NNCompilation_Build(world.compilation()),
    _build(lambda compilation: OH_NNCompilation_SetDevice(compilation, UNKNOWN_ID)),
)


@case("9.10-5a")
def _(world: World) -> Any:
    world.connect("silent")
    return OH_NNCompilation_Build(world.with_cache())


def _for_another_device(choose: Callable[[Any], Any]) -> Callable[[World], Any]:
    """Return a body that sets an option on one device, and builds on another that doesn't offer it."""

    def body(world: World) -> Any:
        _, silent = world.connect("faulty", "silent")
        compilation = world.compilation()
        ok(choose(compilation))
        ok(OH_NNCompilation_SetDevice(compilation, silent))
        return OH_NNCompilation_Build(compilation)

    return body


cases(
    "9.10-5b",
    _for_another_device(lambda compilation: OH_NNCompilation_EnableFloat16(compilation, True)),
    _for_another_device(lambda compilation: OH_NNCompilation_SetPerformanceMode(compilation, OH_NN_PERFORMANCE_HIGH)),
    _for_another_device(lambda compilation: OH_NNCompilation_SetPriority(compilation, OH_NN_PRIORITY_HIGH)),
)
cases(
    "9.10-5c",
    _build(lambda compilation: OH_NNCompilation_SetPerformanceMode(compilation, 99), backend="faulty"),
    _build(lambda compilation: OH_NNCompilation_SetPriority(compilation, -1), backend="faulty"),
)
cases("9.10-5d", lambda world: OH_NNCompilation_Build(world.faulty("extension")))


@case("9.10-5e")
def _(world: World) -> Any:
    world.connect("reference")
    return OH_NNCompilation_Build(world.with_cache(NO_VERSION))


cases("9.10-6a", _on("reference", lambda world: OH_NNCompilation_Build(world.compilation(world.model()))))


@case("9.10-6b")
def _(world: World) -> Any:
    world.connect("picky")
    model = world.tensors([4], [4], [4])
    ok(OH_NNModel_AddOperation(model, OH_NN_OPS_SUB, [], [0, 1], [2]))
    ok(OH_NNModel_SpecifyInputsAndOutputs(model, [0, 1], [2]))
    ok(OH_NNModel_Finish(model))
    return OH_NNCompilation_Build(world.compilation(model))


cases("9.10-6c", lambda world: OH_NNCompilation_Build(world.faulty("prepare")))
cases("9.10-6d", _on("reference", lambda world: OH_NNCompilation_Build(world.offline_file(world.directory / "none"))))


@case("9.10-6e")
def _(world: World) -> Any:
    world.connect("reference")
    empty = world.directory / "empty"
    empty.touch()
    return OH_NNCompilation_Build(world.offline_file(empty))


cases("9.10-6e", _on("reference", lambda world: OH_NNCompilation_Build(world.offline_file(world.directory))))


@case("9.10-6f")
def _(world: World) -> Any:
    """The faulty backend refuses to restore its own export."""
    world.connect("faulty")
    offline = world.offline_buffer(world.exported())
    return OH_NNCompilation_Build(offline)


@case("9.10-6f")
def _(world: World) -> Any:
    world.connect("faulty")
    file = world.directory / "model"
    file.write_bytes(world.exported())
    return OH_NNCompilation_Build(world.offline_file(file))


@case("9.10-6f")
def _(world: World) -> Any:
    """The buffer is no offline model."""
    world.connect("faulty")
    return OH_NNCompilation_Build(world.offline_buffer(b"a vendor's own format"))


@case("9.10-6g")
def _(world: World) -> Any:
    world.connect("reference")
    restored = world.for_cache()
    ok(OH_NNCompilation_SetCache(restored, str(world.directory), 1))
    return OH_NNCompilation_Build(restored)


@case("9.10-6g")
def _(world: World) -> Any:
    _cached(world, version=1)
    restored = world.for_cache()
    ok(OH_NNCompilation_SetCache(restored, str(world.directory), 2))
    return OH_NNCompilation_Build(restored)


def _import_and_build(world: World, cache: bytes) -> Any:
    restored = world.for_cache()
    ok(OH_NNCompilation_ImportCacheFromBuffer(restored, cache))
    return OH_NNCompilation_Build(restored)


@case("9.10-6h")
def _(world: World) -> Any:
    world.connect("reference")
    cache = bytearray(world.exported())
    cache[-1] ^= 1
    return _import_and_build(world, bytes(cache))


@case("9.10-6h")
def _(world: World) -> Any:
    world.connect("reference")
    cache = world.exported()
    world.connect("faulty")
    return _import_and_build(world, cache)


@case("9.10-6i")
def _(world: World) -> Any:
    """The compiled model can be used, although its cache was not written."""
    compilation = world.faulty("export")
    ok(OH_NNCompilation_SetCache(compilation, str(world.directory), 1))
    answer = OH_NNCompilation_Build(compilation)
    assert world.executor(compilation=compilation)
    return answer


@case("9.10-6j")
def _(world: World) -> Any:
    file = _cached(world)
    compilation = world.with_cache()
    _flipped(file)
    return OH_NNCompilation_Build(compilation)


@case("9.10-6k")
def _(world: World) -> Any:
    """The faulty backend restores nothing; with a model, Build compiles it again."""
    world.connect("faulty")
    world.cached()
    ok(OH_NNCompilation_Build(world.with_cache()))
    restored = world.for_cache()
    ok(OH_NNCompilation_SetCache(restored, str(world.directory), 1))
    return OH_NNCompilation_Build(restored)


@case("9.10-7")
def _(world: World) -> Any:
    daemon = world.connect_own("faulty")
    compilation = world.compilation()
    ok(OH_NNCompilation_AddExtensionConfig(compilation, "fault", b"compiles for ever"))
    answers: list[Any] = []
    building = threading.Thread(target=lambda: answers.append(OH_NNCompilation_Build(compilation)))
    building.start()
    until(lambda: "compiling for ever" in daemon.log())
    daemon.kill()
    building.join(30)
    ok(OH_NNCompilation_SetPriority(compilation, OH_NN_PRIORITY_NONE))
    return answers[0]


@case("9.11-2")
def _(world: World) -> Any:
    world.connect("reference")
    compilation = world.built()
    executor = world.executor(compilation=compilation)
    answer = OH_NNCompilation_Destroy(compilation)
    output = world.tensor()
    ok(OH_NNExecutor_RunSync(executor, [world.tensor(values=X)], [output]))
    assert list(floats(output)) == [1, 2, 3, 4]
    return answer
