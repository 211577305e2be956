"""Functions of compilations."""

from collections.abc import Callable
from functools import partial
from os import PathLike

from nnrt_client.build.compilation import Compilation
from nnrt_client.c_interface.adapter import (
    BufferTooSmall,
    returns_code,
    returns_nothing,
    returns_pointer,
    returns_value,
)
from nnrt_client.c_interface.buffers import AnyBuffer, bytes_of, writable_bytes_of
from nnrt_client.c_interface.functions.devices import device_of
from nnrt_client.c_interface.handles import OH_NNCompilation, OH_NNModel
from nnrt_client.session.device import Device
from nnrt_hdi.errors import InvalidParameter


def device_finder(device_id: int) -> Callable[[], Device]:
    """Return a function that finds the device with an id, so that compilations accept any id until they are built."""
    return partial(device_of, device_id)


@returns_pointer("OH_NNCompilation", "Compilation")
def OH_NNCompilation_Construct(model: OH_NNModel | None) -> OH_NNCompilation:
    """Create a compilation of a model, which must be finished before `Build`. Its handle may be destroyed at once."""
    return OH_NNCompilation(Compilation(OH_NNModel.require(model), device_finder(0)))


@returns_pointer("OH_NNCompilation", "Compilation.from_offline_file")
def OH_NNCompilation_ConstructWithOfflineModelFile(model_path: str | PathLike[str] | None) -> OH_NNCompilation:
    """Create a compilation of an offline model in a file, which `Build` reads."""
    if model_path is None:
        raise InvalidParameter("the path is None; give that of an offline model")
    return OH_NNCompilation(Compilation.from_offline_file(model_path, device_finder(0)))


@returns_pointer("OH_NNCompilation", "Compilation.from_offline_buffer")
def OH_NNCompilation_ConstructWithOfflineModelBuffer(model_buffer: AnyBuffer | None) -> OH_NNCompilation:
    """Create a compilation of an offline model in memory; it isn't copied, and must not change until `Build` ends."""
    return OH_NNCompilation(Compilation.from_offline_buffer(bytes_of(model_buffer), device_finder(0)))


@returns_pointer("OH_NNCompilation", "Compilation.for_cache")
def OH_NNCompilation_ConstructForCache() -> OH_NNCompilation:
    """Create a compilation of a cache, which is set or imported before `Build`."""
    return OH_NNCompilation(Compilation.for_cache(device_finder(0)))


@returns_code("Compilation.set_device")
def OH_NNCompilation_SetDevice(compilation: OH_NNCompilation | None, device_id: int) -> None:
    """Set the device. Any id is accepted; `Build` looks for the device."""
    OH_NNCompilation.require(compilation).set_device(device_finder(device_id))


@returns_code("Compilation.set_performance_mode")
def OH_NNCompilation_SetPerformanceMode(compilation: OH_NNCompilation | None, performance_mode: int) -> None:
    """Set the performance mode. UNAVAILABLE_DEVICE if the device has no performance modes."""
    OH_NNCompilation.require(compilation).set_performance_mode(performance_mode)  # type: ignore[arg-type]  # Build checks


@returns_code("Compilation.set_priority")
def OH_NNCompilation_SetPriority(compilation: OH_NNCompilation | None, priority: int) -> None:
    """Set the priority. UNAVAILABLE_DEVICE if the device has no priorities."""
    OH_NNCompilation.require(compilation).set_priority(priority)  # type: ignore[arg-type]  # Build checks


@returns_code("Compilation.enable_float16")
def OH_NNCompilation_EnableFloat16(compilation: OH_NNCompilation | None, enable_float16: bool) -> None:
    """Enable half precision. UNAVAILABLE_DEVICE if the device can't compute in it."""
    OH_NNCompilation.require(compilation).enable_float16(enable_float16)


@returns_code("Compilation.set_cache")
def OH_NNCompilation_SetCache(
    compilation: OH_NNCompilation | None, cache_path: str | PathLike[str] | None, version: int
) -> None:
    """Set the directory of caches, which has one per device. An existing cache is read and checked at once."""
    inner = OH_NNCompilation.require(compilation)
    if cache_path is None:
        raise InvalidParameter("the path is None; give that of a directory")
    inner.set_cache(cache_path, version, reads_all=True)


@returns_code("Compilation.import_cache")
def OH_NNCompilation_ImportCacheFromBuffer(compilation: OH_NNCompilation | None, buffer: AnyBuffer | None) -> None:
    """Import a cache. The buffer is not copied: it must not change until `Build` ends."""
    OH_NNCompilation.require(compilation).import_cache(bytes_of(buffer))


@returns_value("model size", 0, "Compilation.export_cache")
def OH_NNCompilation_ExportCacheToBuffer(compilation: OH_NNCompilation | None, buffer: AnyBuffer | None) -> int:
    """Write the cache to a buffer, from its beginning. INVALID_PARAMETER, with the needed size, if it is too small."""
    inner, target = OH_NNCompilation.require(compilation), writable_bytes_of(buffer)
    cache = inner.export_cache()
    if len(cache) > len(target):
        raise BufferTooSmall(len(target), len(cache))
    target[: len(cache)] = cache
    return len(cache)


@returns_code("Compilation.add_extension_config")
def OH_NNCompilation_AddExtensionConfig(
    compilation: OH_NNCompilation | None, config_name: str | None, config_value: AnyBuffer | None
) -> None:
    """Set an option of the backend, which refuses unknown ones in `Build`.

    If a name is set twice, `|` joins the values. `ModelName` is no option of the backend: models with different
    ModelNames can share a cache directory.

    Raises:
        InvalidParameter: The name is None.
    """
    inner, value = OH_NNCompilation.require(compilation), bytes_of(config_value)
    if config_name is None:
        raise InvalidParameter("the name is None; give a text")
    inner.add_extension_config(config_name, value.tobytes())


@returns_code("Compilation.build")
def OH_NNCompilation_Build(compilation: OH_NNCompilation | None) -> None:
    """Compile the model, which may take minutes. After a device has accepted or refused it, no setting can change."""
    OH_NNCompilation.require(compilation).build()


@returns_nothing("Compilation.close")
def OH_NNCompilation_Destroy(compilation: OH_NNCompilation | None) -> None:
    """Destroy a compilation. Its executors keep working."""
    OH_NNCompilation.take(compilation).close()
