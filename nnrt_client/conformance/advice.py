"""Advice for each kind of fault: what a developer should look at next."""

import math

from nnrt_client.conformance.case import Level
from nnrt_client.conformance.kit import Result
from nnrt_client.conformance.outcome import Outcome, Verdict
from nnrt_hdi.enums import ReturnCode

_CRASHED = (
    "look at the daemon's exit code and at the end of its standard error: below 0 it is the signal that ended native"
    " code, 75 says that a run couldn't be stopped, and python -X faulthandler shows where a signal came"
)
_UNREADABLE = (
    "look at the reply that the daemon sends, for no client can read it: the traceback is in the kit's log above"
)
_REFUSED_LATE = (
    "look at `supported`: what `prepare` or a run refuses it has to refuse before, for the same reason, or a check of"
    " theirs is too strict"
)
_ERRORS = {
    ReturnCode.UNAVAILABLE_DEVICE: (
        "look in the daemon's log for the id of the request: there stands the traceback of what the backend raised"
    ),
    ReturnCode.TIMEOUT: (
        "look at what the run waits for, and whether it asks its cancellation; where it is only slow, give --timeout"
    ),
    ReturnCode.MEMORY_ERROR: (
        "look at what `sizes` says of the run, and at the daemon's limits (--tensor-bytes, --run-bytes,"
        " --session-bytes)"
    ),
}
_BEHAVIOUR = {
    Level.CONTRACT: "look at `describe`, and at what docs/guides/write-a-backend.md says of the method named",
    Level.CONCURRENCY: (
        "look for what runs share: buffers, workspaces and states belong to a run and not to its model, inputs are only"
        " read, and a cancellation is asked between operators"
    ),
    Level.SEQUENCES: (
        "look for outputs that lie in memory of the model, or over its inputs: a run leaves what it reads as it is, and"
        " what it has made stays as it is in later runs"
    ),
    Level.CACHES: "look at `export` and `restore`: what `export` did not make, to the last bit, is an InvalidFile",
    Level.DEATH: "look at the checks of shapes, indices and divisors, which come before memory is taken or read",
}
_CLAIMS = (
    "look at what the backend says of the model: `supported`, `prepare` and the prepared model come from the same"
    " checks, in whatever order nodes stand, and inputs that are wrong end a run with InvalidParameter"
)
_FORM = "look at the shape and the data type of the output first, and then at elements that are no numbers or infinite"
_NUMBERS = {
    Level.QUANTIZED: (
        "look at the scale, the zero point and the rounding of the output, and at the bits in which products are summed"
    ),
    Level.FLOAT16: "look at the type in which sums are made, and where values are rounded to FLOAT16",
    Level.GRAPHS: (
        "look at what the compiler fuses, and at memory that is used again too early; --keep DIR writes the smallest"
        " part that goes wrong"
    ),
}
_FORMULA = (
    "look at docs/reference/operators.md for the operator's formula and attributes; --keep DIR writes the model, its"
    " inputs and the right outputs"
)


def advice(result: Result) -> str:
    """Return one sentence that says what to look at next; empty if the result is no fault."""
    outcome, level = result.outcome, result.trial.level
    match outcome.verdict:
        case Verdict.CRASHED:
            return _CRASHED
        case Verdict.FAILED:
            return _UNREADABLE if outcome.code is None else _ERRORS.get(outcome.code, _REFUSED_LATE)
        case Verdict.WRONG:
            return _BEHAVIOUR.get(level) or _answer_advice(outcome, level)
    return ""


def _answer_advice(outcome: Outcome, level: Level) -> str:
    if outcome.error is None:
        return _CLAIMS
    return _FORM if math.isinf(outcome.error) else _NUMBERS.get(level, _FORMULA)
