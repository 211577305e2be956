"""Resolver of k8s:///NAMESPACE/SERVICE:PORT: the ready pods behind a Kubernetes service, by its EndpointSlices.

PORT is the port of the pods, or its name in the service. Without PORT the service must have only one port. The cluster
is that of KUBECONFIG, else the one in which this process runs as a pod, else that of ~/.kube/config.
"""

import json
import math
import os
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from nnrt_client.resolvers.names import Name
from nnrt_client.resolvers.resolver import Resolver
from nnrt_client.settings import Settings
from nnrt_hdi.errors import ConnectionFailed

# Seconds after which a watch is requested again, because a dead connection looks like a service without changes.
_WATCH_S = 30.0
# Further seconds for the server to end the watch, and longest pause before the next request.
_GRACE_S, _PAUSE_S = 5.0, 1.0
_MOST_BACKOFF_S = 30.0
_FORBIDDEN, _GONE = 403, 410
_IN_A_POD, _CONFIG = "KUBERNETES_SERVICE_HOST", "KUBECONFIG"
# RFC 1123, as for names of Kubernetes.
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_FAMILIES = ("IPv4", "IPv6", "FQDN")

Slice = Mapping[str, Any]


class ServiceResolver(Resolver):
    """Resolver that watches the ready pods of a service at the API server.

    (It doesn't use the informer of the official client, which waits without a limit, and repeats refused requests
    without a pause.)
    """

    def __init__(
        self,
        name: str,
        api: client.DiscoveryV1Api,
        service: tuple[str, str],
        port: str,
        watch_s: float,
        timeout_s: float,
    ) -> None:
        """Create the resolver of a service, a pair of namespace and name. An answer may take `timeout_s`."""
        super().__init__(name, watch_s + _GRACE_S + _PAUSE_S + timeout_s)
        self._api = api
        self._namespace, self._service = service
        self._port = port
        self._watch_s = watch_s
        self._timeout_s = timeout_s
        self._slices: dict[str, Slice] = {}
        # Number of failures since the last answer.
        self._failures = 0
        # Response of the watch under way.
        self._response: Any = None

    def _follow(self) -> None:
        if self._wait_after_failures():
            return
        try:
            version = self._list()
            self._failures = 0
            while version and not self._wait(random.uniform(0, _PAUSE_S)):  # noqa: S311
                version = self._watch_changes(version)
        except (ApiException, HTTPError, OSError, ValueError, KeyError) as error:
            if self._is_over or getattr(error, "status", None) == _GONE:  # After GONE, the next call lists again.
                return
            self._failures += 1
            raise ConnectionFailed(_describe(error), place=self.name) from error

    def _interrupt(self) -> None:
        response = self._response
        if response is not None:
            with suppress(OSError, RuntimeError, ValueError):  # The response has just ended.
                response.shutdown()

    def _wait_after_failures(self) -> bool:
        """Wait before the next request, longer after more failures. Return whether `close` was called.

        A random part of the wait spreads the requests of many clients.
        """
        if self._failures < 2:  # After the first failure, `_run` waits.
            return self._is_over
        most_s = min(2.0 ** (self._failures - 1), _MOST_BACKOFF_S)
        return self._wait(random.uniform(most_s / 2, most_s))  # noqa: S311

    def _list(self) -> str:
        """Request the slices and publish their addresses. Return the version from which a watch reports changes."""
        with closing(self._ask(timeout_s=self._timeout_s)) as response:
            found = json.loads(response.data)
        self._slices = {piece["metadata"]["name"]: piece for piece in found["items"]}
        self._publish(self._addresses())
        version: str = found["metadata"]["resourceVersion"]
        return version

    def _watch_changes(self, version: str) -> str:
        """Publish changes since a version until the server ends the watch.

        Returns:
            The latest version, or an empty text if the server no longer has the changes since the given one.
        """
        seconds, silence_s = math.ceil(self._watch_s), self._watch_s + _GRACE_S
        asked = self._ask(silence_s, watch=True, resource_version=version, timeout_seconds=seconds)
        with closing(asked) as self._response:
            if self._is_over:  # `_interrupt` may have been called before there was a response.
                return version
            for event in _events(asked):
                changed = event["object"]
                if event["type"] == "ERROR":
                    if changed.get("code") == _GONE:
                        return ""
                    raise ApiException(status=changed.get("code"), reason=changed.get("message"))
                version = changed["metadata"]["resourceVersion"]
                if event["type"] == "DELETED":
                    self._slices.pop(changed["metadata"]["name"], None)
                elif event["type"] != "BOOKMARK":
                    self._slices[changed["metadata"]["name"]] = changed
                self._publish(self._addresses())
        return version

    def _ask(self, timeout_s: float, **of_a_watch: Any) -> Any:
        return self._api.list_namespaced_endpoint_slice(
            self._namespace,
            label_selector=f"kubernetes.io/service-name={self._service}",
            allow_watch_bookmarks=bool(of_a_watch),
            _preload_content=False,
            _request_timeout=(self._timeout_s, timeout_s),
            **of_a_watch,
        )

    def _addresses(self) -> tuple[str, ...]:
        """Return one address per ready pod, IPv4 if there is one, because all of them reach the same daemon."""
        pods: dict[str, tuple[int, str]] = {}
        ports: dict[str, int] = {}
        for piece in self._slices.values():
            family = piece["addressType"]
            ports |= _ports_of(piece)
            port = self._port_of(piece)
            for endpoint in filter(_is_ready, piece.get("endpoints") or ()):
                host = endpoint["addresses"][0]
                pod = (endpoint.get("targetRef") or {}).get("uid", host)
                if port is not None:
                    found = (_FAMILIES.index(family), f"[{host}]:{port}" if family == "IPv6" else f"{host}:{port}")
                    pods[pod] = min(found, pods.get(pod, found))
        if ports and not any(map(self._port_of, self._slices.values())):
            there = ", ".join(f"{port} ({name})" if name else str(port) for name, port in sorted(ports.items()))
            raise ConnectionFailed(
                f"the pods of the service have no port {self._port!r}; they have {there}", place=self.name
            )
        return tuple(sorted(address for _, address in pods.values()))

    def _port_of(self, piece: Slice) -> int | None:
        """Return the wanted port of a slice's pods, or None if they don't have it."""
        ports = _ports_of(piece)
        if not self._port:
            return next(iter(ports.values())) if len(ports) == 1 else None
        if self._port.isdecimal():
            return int(self._port) if int(self._port) in ports.values() else None
        return ports.get(self._port)


def _ports_of(piece: Slice) -> dict[str, int]:
    """Return the ports of a slice by name. The name of a service's only port may be empty."""
    return {entry.get("name") or "": entry["port"] for entry in piece.get("ports") or () if entry.get("port")}


def _events(response: Any) -> Iterator[Any]:
    """Yield the events of a watch until it ends or breaks off.

    The resolver then requests another watch from the latest version.
    """
    with suppress(HTTPError):
        for line in response:
            yield json.loads(line)


def _is_ready(endpoint: Mapping[str, Any]) -> bool:
    """Return whether a pod takes new work. A missing condition counts as ready, as the API specifies."""
    conditions = endpoint.get("conditions") or {}
    return conditions.get("ready") is not False and not conditions.get("terminating")


def _describe(error: Exception) -> str:
    if isinstance(error, KeyError | ValueError):
        return f"the API server's answer can't be understood ({error!r})"
    if not isinstance(error, ApiException):
        return f"the API server can't be asked: {error}"
    hint = ""
    if error.status == _FORBIDDEN:
        hint = "; give it the Role NAME-resolver of the chart in deploy/helm, which lists and watches endpointslices"
    return f"the API server answers {error.status} {error.reason}{hint}"


def create(name: Name, settings: Settings) -> ServiceResolver:
    """Make the resolver of a name. Raise InvalidParameter for an invalid name."""
    name.allow_options("every")
    namespace, _, rest = name.path.partition("/")
    service, _, port = rest.partition(":")
    if name.authority or not re.fullmatch(_LABEL, namespace) or not re.fullmatch(_LABEL, service) or "/" in port:
        raise name.error(
            "it names no service; use k8s:///NAMESPACE/SERVICE:PORT, with the port of its pods or its name"
        )
    api = client.DiscoveryV1Api(client.ApiClient(_configuration(name)))
    every_s = name.seconds("every", _WATCH_S)
    return ServiceResolver(name.text, api, (namespace, service), port, every_s, settings.query_timeout_s)


def _configuration(name: Name) -> client.Configuration:
    """Return the configuration for the API server: in a pod, the pod's; else that of KUBECONFIG or ~/.kube/config."""
    configuration = client.Configuration()
    try:
        if _IN_A_POD in os.environ and _CONFIG not in os.environ:
            config.load_incluster_config(client_configuration=configuration)
        else:
            config.load_kube_config(os.environ.get(_CONFIG), client_configuration=configuration)
    except config.ConfigException as error:
        raise name.error(f"no cluster is known: {error}; set {_CONFIG}, or run in a pod") from error
    configuration.retries = False  # The resolver repeats requests itself.
    return configuration
