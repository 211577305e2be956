"""The plans of a session: runs that its client makes again and again, as the daemon keeps them."""

import threading
from typing import Any

from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.memory_budget import MemoryBudget
from nnrt_hdi.errors import OutOfMemory
from nnrt_hdi.limits import MAX_PLANS


class Plans:
    """Finds plans by the numbers that the client gave them. What is in them is the transport's affair, but for `model`
    and `held_bytes`.

    `get` is on the way of every planned run and takes no lock.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._plans: dict[int, Any] = {}
        self._is_open = True
        self.get = self._plans.get

    def keep(self, number: int, plan: Any) -> bool:
        """Keep a plan if there is room for it, and no other one of its number; whether it is kept."""
        if not self._has_room(number):
            return False
        try:
            self._budget.reserve(plan.held_bytes)  # Without the lock: others may have to give memory back.
        except OutOfMemory:
            return False
        with self._lock:
            if is_kept := self._has_room(number):
                self._plans[number] = plan
        if not is_kept:
            self._budget.release(plan.held_bytes)
        return is_kept

    def _has_room(self, number: int) -> bool:
        return self._is_open and len(self._plans) < MAX_PLANS and number not in self._plans

    def forget(self, model: LoadedModel) -> None:
        """The session has a model no more."""
        with self._lock:
            for number in [number for number, plan in self._plans.items() if plan.model is model]:
                self._budget.release(self._plans.pop(number).held_bytes)

    @property
    def held_bytes(self) -> int:
        """Bytes that plans take."""
        return sum(plan.held_bytes for plan in list(self._plans.values()))

    def close(self) -> None:
        """Forget all plans. There can be no more of them."""
        with self._lock:
            self._is_open = False
            while self._plans:
                self._budget.release(self._plans.popitem()[1].held_bytes)
