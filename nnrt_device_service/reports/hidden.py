"""What must stand in no report: what is called like a secret."""

import json
import re
from collections.abc import Iterable, Mapping

HIDDEN = "***"
# Shorter ones would be found in words that mean something else.
_LEAST_LENGTH = 6
_SECRET_NAME = re.compile("pass|secret|token|key|credential|auth|cookie|session|private|signature|login", re.IGNORECASE)
# Who gets in at a URL, and by what password.
_URL_LOGIN = re.compile(r"(?<=://)[^\s/?#\"'@]*@")
# Of variables with these names the values are known to be harmless, and say much.
_TOLD_VARIABLES = re.compile(
    "OMP_NUM_THREADS|OPENBLAS_NUM_THREADS|MKL_NUM_THREADS|CUDA_VISIBLE_DEVICES|GRPC_(VERBOSITY|TRACE|POLL_STRATEGY)"
    "|MALLOC_[A-Z_]*|PYTHON(MALLOC|DEVMODE|OPTIMIZE|UNBUFFERED)|LANG|LC_ALL|TZ|WATCHDOG_USEC"
)
_NAMED_VARIABLES = re.compile("(NNRT|GRPC|OMP|MKL|OPENBLAS|CUDA|ORT|NVIDIA|ROCR|HIP|MALLOC|LD|PYTHON|OTEL|LC)_?.*")


def is_secret(name: str) -> bool:
    """Tell whether what has this name may be a secret."""
    return _SECRET_NAME.search(name) is not None


def told_option(pair: str) -> str:
    """NAME=VALUE of an option for a backend, without a value that may be a secret."""
    name, equals, _ = pair.partition("=")
    return f"{name}{equals}{HIDDEN}" if is_secret(name) else pair


def told_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter to a daemon, with the values of those that hold no secret."""
    wanted = sorted(name for name in environment if _NAMED_VARIABLES.fullmatch(name))
    wanted += sorted(name for name in environment if _TOLD_VARIABLES.fullmatch(name) and name not in wanted)
    return {name: environment[name] if _TOLD_VARIABLES.fullmatch(name) else HIDDEN for name in wanted}


def secret_values(named: Iterable[tuple[str, str]]) -> list[str]:
    """The values that may be secrets, the longest first."""
    values = {value for name, value in named if is_secret(name) and len(value) >= _LEAST_LENGTH}
    return sorted(values, key=len, reverse=True)


def without(values: Iterable[str], text: str) -> str:
    """The text, in which none of these values stands any more, as it is or as JSON has it, nor a login of a URL."""
    for value in values:
        text = text.replace(value, HIDDEN).replace(json.dumps(value)[1:-1], HIDDEN)
    return _URL_LOGIN.sub(f"{HIDDEN}@", text)
