"""Names, and what is none."""

import sys

import pytest

from nnrt_client import InvalidParameter, Runtime, Settings, Unsupported
from nnrt_client.resolvers.names import Name, is_name, resolver_for


@pytest.mark.parametrize("text", ["127.0.0.1:1", "[::1]:1", "host:1", "unix:/tmp/x", "unix:///tmp/x", "", "name"])
def test_addresses_are_no_names(text: str) -> None:
    assert not is_name(text)


def test_a_name_in_its_parts() -> None:
    name = Name.parse("dns://10.0.0.1:53/host%2A:50051?every=2&x=")
    assert (name.scheme, name.authority, name.path) == ("dns", "10.0.0.1:53", "host*:50051")
    assert name.options == {"every": "2", "x": ""}


def test_an_unknown_scheme_lists_those_that_are_known() -> None:
    with pytest.raises(InvalidParameter, match=r"'consul'; there are dns, file.*pip install 'nnrt\[mdns\]'"):
        Runtime(["consul:///nnrt"])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("://", "no resolver knows the scheme ''"),
        ("dns://[::1/x:1", "it is no name"),
        ("dns:///host:1?every", "it is no name"),
        ("dns:///host", "'host' is no HOST:PORT"),
        ("dns:///host:", "'host:' is no HOST:PORT"),
        ("dns:///:1", "':1' is no HOST:PORT"),
        ("dns:///host:65536", "'host:65536' is no HOST:PORT"),
        ("dns:///host:1?every=0", "every is '0'; use a number of seconds above 0"),
        ("dns:///host:1?every=nan", "every is 'nan'; use"),
        ("dns:///host:1?family=5", "family is '5'; use 4 or 6"),
        ("dns:///host:1?evry=1", "dns has no option 'evry'; use every or family"),
        ("dns://server.example/host:1", "the name server is 'server.example'; give its IP address"),
        ("dns://127.0.0.1:x/host:1", "'127.0.0.1:x' is no HOST:PORT"),
        (f"dns://127.0.0.1/{'x' * 64}:1", "it can't be looked up"),
        ("file://host/path", "it names no file of this host"),
        ("file:///", "it names no file of this host"),
        ("file:///list?every=x", "every is 'x'"),
    ],
)
def test_what_is_wrong_with_a_name(name: str, why: str) -> None:
    with pytest.raises(InvalidParameter, match=why) as raised:
        Runtime([name])
    assert str(raised.value).startswith(name)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "nnrt_client.resolvers.name_server", raising=False)
    monkeypatch.setitem(sys.modules, "dns.exception", None)
    with pytest.raises(Unsupported, match=r"pip install 'nnrt\[dns\]'"):
        resolver_for("dns:///_nnrt._tcp.example.org", Settings())
