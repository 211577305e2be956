"""What a backend says of its device is checked before anybody is told."""

from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Any

import pytest
from daemon_process import DaemonProcess

from nnrt_client.conformance.levels.contract import describes_itself
from nnrt_client.conformance.target import Breach
from nnrt_hdi.backend import Capabilities, DeviceInfo, require_description
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.errors import InvalidParameter

INFO = DeviceInfo("left", "acme", DeviceType.ACCELERATOR, Capabilities(), "acme-ml", "1.2 (chip 7)")
WRONG: list[tuple[str, Any, str]] = [
    ("device_name", "", "''; give a name"),
    ("device_name", 7, "7; give a name"),
    ("device_name", None, "None; give a name"),
    ("vendor_name", "ac\nme", r"'ac\\nme'; give a name"),
    ("vendor_name", "\ud800", r"'\\ud800'; give a name"),
    ("backend_name", b"acme", "b'acme'; give a name"),
    ("backend_version", "", "''; give a text that begins with a number"),
    ("backend_version", "nightly", "'nightly'; give a text that begins with a number"),
    ("backend_version", 1.2, "1.2; give a text that begins with a number"),
    ("device_type", 2, "2; give one of DeviceType"),
    ("device_type", "GPU", "'GPU'; give one of DeviceType"),
    ("capabilities", None, "None; give a Capabilities"),
]


@pytest.mark.parametrize(("field", "value", "said"), WRONG)
def test_a_wrong_field_is_named(field: str, value: object, said: str) -> None:
    with pytest.raises(InvalidParameter, match=rf"^describe\(\) of backend 'acme': {field} is {said}"):
        require_description(replace(INFO, **{field: value}), "acme")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("model_cache", "yes", "'yes'; give True or False"),
        ("priority", 1, "1; give True or False"),
        ("program_formats", "onnx", r"'onnx'; give a tuple of names, such as \('onnx',\)"),
        ("program_formats", ("",), r"\('',\); give a tuple of names"),
    ],
)
def test_a_wrong_capability_is_named(field: str, value: object, said: str) -> None:
    info = replace(INFO, capabilities=replace(Capabilities(), **{field: value}))  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match=rf"capabilities\.{field} is {said}"):
        require_description(info, "acme")


def test_what_is_no_description_is_named() -> None:
    with pytest.raises(InvalidParameter, match="it is a dict; give a DeviceInfo"):
        require_description({"device_name": "left"}, "acme")


def test_right_descriptions_pass() -> None:
    require_description(INFO, "acme")
    require_description(replace(INFO, capabilities=Capabilities(program_formats=("onnx",))), "acme")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["device_name=''"], "device_name is ''; give"),
        (["backend_version=3"], "backend_version is 3; give"),
        (["device_name=7", "device_type=GPU"], "device_name is 7; give"),
        (["nothing=True"], "it is a NoneType; give a DeviceInfo"),
    ],
)
def test_a_daemon_does_not_start_with_a_wrong_one(options: list[str], said: str) -> None:
    """Before, it started, and clients could read nothing that it said; of a GPU it must not claim what has no name."""
    with pytest.raises(RuntimeError, match="the daemon did not start") as refused:
        DaemonProcess("--backend", "described", *(f"--option={option}" for option in options))
    (line,) = str(refused.value).splitlines()
    assert f"Error: describe() of backend 'described': {said}" in line


def test_the_list_of_backends_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend with such a description counts as broken."""
    from nnrt_hdi.backend import plugins

    wrong = SimpleNamespace(describe=lambda: replace(INFO, vendor_name=""), close=lambda: None)
    monkeypatch.setattr(EntryPoint, "load", lambda point: lambda options: wrong)
    (state, *_) = plugins.backend_states()
    assert "vendor_name is ''; give a name" in state.broken


def test_the_kit_names_the_field() -> None:
    """Of a daemon that isn't ours and checks nothing."""

    @contextmanager
    def session() -> Any:
        raise AssertionError("the description is looked at first")
        yield

    with pytest.raises(Breach, match="backend_version is 'nightly'; give a text that begins with a number"):
        describes_itself(SimpleNamespace(info=replace(INFO, backend_version="nightly"), session=session))  # type: ignore[arg-type]
