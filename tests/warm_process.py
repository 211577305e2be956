"""Program of a warm process (see `warm`): it imports modules, and forks a child for each request on a socket."""

import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import warnings
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_MAX_REQUEST_BYTES = 1 << 18


def child(end: socket.socket) -> dict[str, Any]:
    """Fork a child for each request; return, in the child only, the request."""
    while True:
        message, standard, _, _ = socket.recv_fds(end, _MAX_REQUEST_BYTES, 3)
        if not message:
            os._exit(0)
        reader, writer = os.pipe()
        if (parent := os.fork()) == 0:
            ended = os.pidfd_open(os.getpid())
            if (pid := os.fork()) == 0:
                select.select([ended], [], [])  # Until then the parent is the intermediate process.
                for number, stream in enumerate(standard):
                    os.dup2(stream, number)
                os.closerange(3, max(end.detach(), ended, writer, *standard) + 1)
                request: dict[str, Any] = json.loads(message)
                return request
            os.write(writer, str(pid).encode())
            os._exit(0)
        os.waitpid(parent, 0)
        end.send(os.read(reader, 64))
        for number in (reader, writer, *standard):
            os.close(number)


def prepare(arguments: list[str], environment: dict[str, str], directory: str, limits: dict[str, list[int]]) -> None:
    """Set up this process as if the command had been executed."""
    for name, (soft, hard) in limits.items():
        resource.setrlimit(getattr(resource, name), (soft, hard))
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert isinstance(sys.stdout, TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())
    if options := environment.get("PYTHONWARNINGS"):
        warnings._processoptions(options.split(","))  # type: ignore[attr-defined]
    if search := environment.get("PYTHONPATH"):
        sys.path[1:1] = search.split(os.pathsep)


def program(main: ModuleType, arguments: list[str]) -> CodeType:
    """Return the code of a command's program, after setting what Python sets for it."""
    kind, *rest = arguments
    if kind == "-c":
        sys.path[0], sys.argv = "", [kind, *rest[1:]]
        return compile(rest[0], "<string>", "exec")
    if kind == "-m":
        sys.path[0] = str(Path.cwd())
        spec = find_spec(rest[0])
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{rest[0]}.__main__")
        assert spec is not None
        assert isinstance(spec.loader, InspectLoader)
        main.__spec__, main.__package__ = spec, spec.parent
        path, code = spec.origin, spec.loader.get_code(spec.name)
    else:
        sys.path[0] = str(Path(kind).parent.resolve())
        path, code, rest = kind, compile(Path(kind).read_bytes(), kind, "exec"), arguments
    assert path is not None
    assert code is not None
    main.__file__, sys.argv = path, [path, *rest[1:]]
    return code


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # OpenBLAS can fork.
    for module in sys.argv[2:]:
        import_module(module)
    gc.freeze()
    request = child(socket.socket(fileno=int(sys.argv[1])))
    if request.pop("has_own_session"):
        os.setsid()
    prepare(**request)
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(program(main, request["arguments"]), main.__dict__)
