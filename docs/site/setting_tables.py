"""Tables of settings, made from the dataclasses that declare them."""

from dataclasses import MISSING, fields

from nnrt_client import Settings as ClientSettings
from nnrt_device_service.settings import Settings


def daemon_settings() -> str:
    """Return one row for each setting of a daemon: flag, environment variable, default, meaning."""
    rows = ["| flag | environment | default | meaning |", "|---|---|---|---|"]
    for entry in fields(Settings):
        default = " ".join(entry.default) if isinstance(entry.default, tuple) else entry.default
        shown = f"`{default}`" if default not in ("", False) else ""
        flag, variable = entry.name.replace("_", "-"), entry.name.upper()
        rows.append(f"| `--{flag}` | `NNRT_DEVICE_{variable}` | {shown} | {entry.metadata['help']} |")
    return "\n".join(rows)


def client_settings() -> str:
    """Return one row for each setting of a client: field, environment variable, default, meaning."""
    rows = ["| field | environment | default | meaning |", "|---|---|---|---|"]
    for entry in fields(ClientSettings):
        variable = f"`{name}`" if (name := entry.metadata.get("variable")) else ""
        default = "" if entry.default in (MISSING, ()) else f"`{entry.default}`"
        rows.append(f"| `{entry.name}` | {variable} | {default} | {entry.metadata['help']} |")
    return "\n".join(rows)
