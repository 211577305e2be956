"""What signal handlers raise, in the midst of other code."""

import signal
from collections.abc import Iterable
from itertools import pairwise
from types import FrameType


def raised_by_handler(error: BaseException) -> bool:
    """Tell if a signal handler raised the error: a function that was called with the frame that it interrupted.

    Whoever catches errors of a kind, such as those of the system, lets this one through: it is the application's.
    """
    frames: list[FrameType] = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    if len(frames) < 2:
        return False
    installed = [getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()]
    return any(
        called.f_code in installed or _is_among(interrupted, called.f_locals.values())
        for interrupted, called in pairwise(frames)
    )


def _is_among(frame: FrameType, values: Iterable[object]) -> bool:
    return any(
        value is frame or (isinstance(value, tuple) and any(each is frame for each in value)) for value in values
    )
