"""Control of a repository."""

from enum import Enum


class Control(Enum):
    """Decision about what is loaded: that of the folder, or that of calls."""

    # Changes of the folder are loaded; a model that was unloaded by a call stays so until it is loaded by one.
    WATCH = "watch"
    # Nothing is loaded without a call.
    EXPLICIT = "explicit"
