"""Hiding of secrets in reports, recognized by their names."""

import json
import re
from collections.abc import Iterable, Mapping

HIDDEN = "***"
# Shorter values would also match inside harmless words.
_LEAST_LENGTH = 6
_SECRET_NAME = re.compile("pass|secret|token|key|credential|auth|cookie|session|private|signature|login", re.IGNORECASE)
# User and password in a URL.
_URL_LOGIN = re.compile(r"(?<=://)[^\s/?#\"'@]*@")
# Variables whose values are harmless and useful.
_VISIBLE_VARIABLES = re.compile(
    "OMP_NUM_THREADS|OPENBLAS_NUM_THREADS|MKL_NUM_THREADS|CUDA_VISIBLE_DEVICES|GRPC_(VERBOSITY|TRACE|POLL_STRATEGY)"
    "|MALLOC_[A-Z_]*|PYTHON(MALLOC|DEVMODE|OPTIMIZE|UNBUFFERED)|LANG|LC_ALL|TZ|WATCHDOG_USEC"
)
_NAMED_VARIABLES = re.compile("(NNRT|GRPC|OMP|MKL|OPENBLAS|CUDA|ORT|NVIDIA|ROCR|HIP|MALLOC|LD|PYTHON|OTEL|LC)_?.*")


def is_secret(name: str) -> bool:
    """Return whether a value of this name may be a secret."""
    return _SECRET_NAME.search(name) is not None


def visible_option(pair: str) -> str:
    """Return a backend option NAME=VALUE, with `HIDDEN` for a value that may be a secret."""
    name, equals, _ = pair.partition("=")
    return f"{name}{equals}{HIDDEN}" if is_secret(name) else pair


def visible_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that matter to a daemon. Hides all values that aren't known to be harmless."""
    wanted = sorted(name for name in environment if _NAMED_VARIABLES.fullmatch(name))
    wanted += sorted(name for name in environment if _VISIBLE_VARIABLES.fullmatch(name) and name not in wanted)
    return {name: environment[name] if _VISIBLE_VARIABLES.fullmatch(name) else HIDDEN for name in wanted}


def secret_values(named: Iterable[tuple[str, str]]) -> list[str]:
    """Return the values that may be secrets, longest first."""
    values = {value for name, value in named if is_secret(name) and len(value) >= _LEAST_LENGTH}
    return sorted(values, key=len, reverse=True)


def hide_values(values: Iterable[str], text: str) -> str:
    """Replace these values, plain or as in JSON, and logins in URLs by `HIDDEN`."""
    for value in values:
        text = text.replace(value, HIDDEN).replace(json.dumps(value)[1:-1], HIDDEN)
    return _URL_LOGIN.sub(f"{HIDDEN}@", text)
