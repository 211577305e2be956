"""Tables of settings, from the dataclasses that declare them."""

import ast
import inspect
from dataclasses import fields

from nnrt_client import settings as client_settings
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


def client_settings_table() -> str:
    """Return one row for each setting of a client: field, environment variable, default, and the comment above it."""
    lines = inspect.getsource(client_settings.Settings).splitlines()
    rows = ["| field | environment | default | meaning |", "|---|---|---|---|"]
    meaning: list[str] = []
    for line in lines:
        text = line.strip()
        if text.startswith("# "):
            meaning.append(text[2:])
        elif text.startswith("def "):
            break
        elif ": " in text and "=" in text and not text.startswith('"'):
            name, _, default = text.partition("=")
            rows.append(_client_row(name.partition(":")[0].strip(), default.strip(), " ".join(meaning)))
            meaning = []
    return "\n".join(rows)


def _client_row(name: str, default: str, meaning: str) -> str:
    variables = {value for key, value in vars(client_settings).items() if key.endswith("_VARIABLE") and key in default}
    variables |= {f"NNRT_{name.upper()}"} & {"NNRT_TRACE"}
    shown = "" if "field" in default or "(" in default else f"`{ast.literal_eval(default)}`"
    return f"| `{name}` | {', '.join(f'`{variable}`' for variable in sorted(variables))} | {shown} | {meaning} |"
