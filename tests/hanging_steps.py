"""Program that starts a daemon in whose watch loop some steps hang.

Usage: `python hanging_steps.py work,log PYTHON -m nnrt_device_service serve`
"""

import sys
import threading
from typing import Any

from lock_watch import become

from nnrt_device_service.host.rounds import Rounds

if __name__ == "__main__":
    hanging, take = sys.argv[1].split(","), Rounds.take

    def take_or_hang(self: Rounds, name: str, step: Any, *others: Any, **named: Any) -> None:
        take(self, name, threading.Event().wait if name in hanging else step, *others, **named)

    Rounds.take = take_or_hang  # type: ignore[method-assign]
    become(sys.argv)
