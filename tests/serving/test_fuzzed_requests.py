"""Random requests from a seed for both faces. `make fuzz` makes more of them."""

import pytest
from part import examples

from serving.fuzzed_requests import FuzzedRequests, attacked_server

REQUESTS = examples(1000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_requests_of_any_kind(seed: int) -> None:
    """Each is answered as it should be, and the server serves on."""
    with attacked_server() as (server, channel):
        requests = FuzzedRequests(seed, server, channel)
        for _ in range(REQUESTS):
            requests.send()
        requests.send_sound()
        assert "Traceback" not in server.log(), server.log()
