"""How a daemon tells whoever supervises it how it is: the protocol of sd_notify(3), which systemd speaks as well.

The environment variable NOTIFY_SOCKET names a Unix socket that gets datagrams of lines NAME=VALUE. Without it nobody is
told anything.
"""

import os
import socket
from contextlib import suppress

# What a supervisor gets to read what came before. Signs of life don't wait: the next one does as well.
_SEND_S = 2.0


def is_supervised() -> bool:
    """Tell if there is a supervisor that wants to be told."""
    return os.environ.get("NOTIFY_SOCKET", "").startswith(("/", "@"))


def notify(**fields: object) -> None:
    """Tell the supervisor. Nothing is raised where it can't be told."""
    if not is_supervised():
        return
    address = os.environ["NOTIFY_SOCKET"]
    lines = [f"{name}={' '.join(str(value).split())}" for name, value in fields.items()]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(0.0 if "WATCHDOG" in fields else _SEND_S)
        sender.sendto("\n".join(lines).encode(), address.replace("@", "\0", 1))


def tell_ready(what: str, addresses: list[str], out: str = "") -> None:
    """The daemon serves; why its device is out, if it is."""
    notify(READY=1, STATUS=f"serving {what} on {', '.join(addresses)}", **_addresses(addresses), **_out(out))


def tell_kind(*, is_shared: bool) -> None:
    """Tell whether daemons may share the device, as they do a CPU; where they don't, one waits for another's end."""
    notify(**{SHARED: "1" if is_shared else ""})


def tell_alive(addresses: list[str], out: str = "") -> None:
    """The daemon still serves. Our own supervisor may be another one than that which heard where, and how."""
    notify(WATCHDOG=1, **_addresses(addresses), **_out(out))


def tell_condition(what: str, out: str) -> None:
    """The device has gone out for a reason, or has come back where there is none."""
    notify(STATUS=f"{what} is out: {out}" if out else f"serving {what}", **{OUT: out})


def tell_stopping(within_s: float) -> None:
    """The daemon finishes what is under way, and ends within that time."""
    notify(STOPPING=1, STATUS="draining", EXTEND_TIMEOUT_USEC=int(within_s * 1e6))


def sign_of_life_s() -> float | None:
    """Seconds between signs of life as the supervisor wants them: half of those after which it ends the daemon."""
    usec, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID") or str(os.getpid())
    if not (usec.isdecimal() and int(usec) and pid == str(os.getpid())):
        return None
    return int(usec) / 1e6 / 2


ADDRESSES = "X_NNRT_ADDRESSES"
OUT = "X_NNRT_OUT"
SHARED = "X_NNRT_SHARED"


def _addresses(addresses: list[str]) -> dict[str, str]:
    return {ADDRESSES: " ".join(addresses)}


def _out(out: str) -> dict[str, str]:
    return {OUT: out} if out else {}
