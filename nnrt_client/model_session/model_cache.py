"""Where `load` keeps what was compiled."""

import hashlib
import json
import logging
import os
from pathlib import Path

from nnrt_client.build.options import Options
from nnrt_client.model.model import Model

_log = logging.getLogger(__name__)

# What of a cache's name the options decide: enough that two never meet.
_OPTIONS_DIGITS = 16


def cache_directory() -> Path:
    """Give the directory of compiled models: `nnrt/models` in XDG_CACHE_HOME, which is ~/.cache if it is not set."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification has relative paths ignored.
    return (given if given.is_absolute() else Path.home() / ".cache") / "nnrt" / "models"


def chosen_directory(cache: bool | str | os.PathLike[str]) -> Path | None:
    if isinstance(cache, bool):
        return cache_directory() if cache else None
    return Path(cache)


def cache_name(model: Model, options: Options) -> str:
    """Of the model, and of the options it is compiled with: those of a cache can't be changed."""
    name = model.digest.hex()
    extensions = {key: value.hex() for key, value in options.extensions.items()}
    chosen = [bool(options.float16), int(options.mode or 0), extensions]
    if not any(chosen):
        return name
    return f"{name}-{hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:_OPTIONS_DIGITS]}"


def made_directory(directory: Path) -> Path | None:
    """The directory, made where it isn't there; None where it can't be."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        _log.warning("compiled models are not kept: %s: %s", directory, error.strerror)
        return None
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        _log.warning("compiled models are not kept: %s can't be read and written", directory)
        return None
    return directory
