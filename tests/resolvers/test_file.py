"""Lists of devices in files."""

import os
from pathlib import Path

import pytest
from waiting import until

from nnrt_client.resolvers.resolver import MOST_ADDRESSES
from resolvers.watching import watched


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "devices"


def test_a_line_is_an_address(path: Path) -> None:
    path.write_text("# ours\n\n 10.0.0.2:1  # the fast one\nhost-1.example:2\r\n[::1]:3\nunix:/run/nnrt 1.sock")
    with watched(f"file://{path}") as told:
        told.wait_for("10.0.0.2:1", "host-1.example:2", "[::1]:3", "unix:/run/nnrt 1.sock")


@pytest.mark.slow
def test_it_is_read_again(path: Path) -> None:
    path.write_text("a:1\n")
    with watched(f"file://{path}?every=0.01") as told:
        told.wait_for("a:1")
        path.write_text("a:1\nb:2\n")
        told.wait_for("a:1", "b:2")
        path.write_text("b:2\n")
        told.wait_for("b:2")
        path.write_text("")
        told.wait_for()


def test_another_file_takes_its_place(path: Path) -> None:
    path.write_text("a:1\n")
    with watched(f"file://{path}?every=0.01") as told:
        told.wait_for("a:1")
        other = path.with_name("other")
        other.write_text("b:2\n")
        other.replace(path)
        told.wait_for("b:2")


def test_one_that_is_being_written_drops_nothing(path: Path) -> None:
    path.write_text("a:1\nb:2\n")
    with watched(f"file://{path}?every=0.01") as told, path.open("r+") as file:
        told.wait_for("a:1", "b:2")
        file.truncate(0)
        for character in "a:1\nb:2\nc:3333\n":
            file.write(character)
            file.flush()
            os.utime(path)
        told.wait_for("a:1", "b:2", "c:3333")
    assert told.lists == [("a:1", "b:2"), ("a:1", "b:2", "c:3333")]


@pytest.mark.slow
def test_one_that_is_gone_drops_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_text("a:1\n")
    with watched(f"file://{path}?every=0.01") as told:
        told.wait_for("a:1")
        path.unlink()
        until(lambda: told.failures)
        path.write_text("b:2\n")
        told.wait_for("b:2")
    assert told.lists[0] == ("a:1",)
    (failure, success) = (record.message for record in caplog.records)
    assert (
        failure
        == f"file://{path}?every=0.01: the file can't be read: No such file or directory; 1 known addresses count on"
    )
    assert success.endswith("look-ups succeed again")


def test_what_is_no_address_is_left_out(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(b"a:1\n\x1b[2J:1\n\xff:1\nhost\nhost:123456\nfile:///x\nb:2\n" + b"x" * 300 + b":1\n")
    with watched(f"file://{path}") as told:
        told.wait_for("a:1", "b:2")
    assert len(caplog.records) == 6
    assert r"'\x1b[2J:1' is no address" in caplog.text


def test_there_are_bounds(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_text("".join(f"host:{port}\n" for port in range(MOST_ADDRESSES + 5)))
    with watched(f"file://{path}?every=0.01") as told:
        until(lambda: told.lists)
        assert len(told.lists[0]) == MOST_ADDRESSES
        path.write_text("x" * (1 << 21))
        until(lambda: told.failures)
    assert "longer than 1048576 bytes" in caplog.text
