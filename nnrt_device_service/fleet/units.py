"""Units with which systemd runs daemons, or the supervisor of a host's."""

import os
import shlex
import sys
from importlib.resources import files
from pathlib import Path

from nnrt_hdi.errors import InvalidPath

UNITS = ("nnrt-device@.service", "nnrt-fleet.service")

# Directories that ProtectHome=yes hides.
_HOMES = ("/home", "/root", "/run/user")


def require_lasting_interpreter() -> None:
    """Raise InvalidPath where this interpreter lies in a folder for temporary files, wherever TMPDIR is.

    Units have such folders of their own (PrivateTmp=), and hosts empty them.
    """
    for folder in ("/tmp", "/var/tmp"):  # noqa: S108
        if Path(sys.prefix).resolve().is_relative_to(Path(folder).resolve()):
            raise InvalidPath(
                f"it lies in {folder!r}, which no service sees and which doesn't last; install nnrt elsewhere, such as"
                " in /opt/nnrt",
                place=f"the interpreter {sys.executable!r}",
            )


def unit(name: str, *, is_user: bool, fleet_file: Path | None) -> str:
    """The text of one of the UNITS, for this interpreter. `fleet_file` is that of the supervisor."""
    home = "read-only" if sys.prefix.startswith(_HOMES) else "yes"
    folder = files("nnrt_device_service.fleet") / "systemd"
    # What a device needs more, such as the group of its /dev file or a limit of memory, comes as a drop-in. The manager
    # of a user has no rights to give away.
    sandbox = (folder / ("user.sandbox" if is_user else "system.sandbox")).read_text()
    text = (folder / name).read_text()
    return text.format(
        python=_escaped(sys.executable),
        file=f" {_escaped(str(fleet_file.absolute()))}" if fleet_file else "",
        sandbox="\n" + sandbox.format(home=home),
        target="default.target" if is_user else "multi-user.target",
    )


def unit_folder(*, is_user: bool) -> Path:
    """Where an administrator, or a user, puts units; see systemd.unit(5)."""
    if not is_user:
        return Path("/etc/systemd/system")
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd/user"


def _escaped(path: str) -> str:
    """A path as one word of ExecStart."""
    return shlex.quote(path).replace("%", "%%").replace("$", "$$")
