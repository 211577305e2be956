"""Scaling of a model: how many replicas it should have by its requests."""

import math

from nnrt_client.serving.repository.model_settings import Scale


class Scaler:
    """Wanted number of replicas of one version of a model. `step` is called often with what is under way."""

    def __init__(self, scale: Scale) -> None:
        """Begin with the smallest number."""
        self.scale = scale
        self.replicas = scale.least
        # Since when there has been too much for the replicas, and since when one less would have been enough.
        self._busy_since = math.inf
        self._calm_since = math.inf

    def step(self, under_way: int, there: int, now: float) -> bool:
        """Take the number of requests under way, and of replicas that are there; return whether `replicas` changed.

        One more is wanted only when all that are wanted are there.
        """
        scale, enough = self.scale, self.scale.requests * self.replicas
        self._busy_since = min(self._busy_since, now) if under_way > enough else math.inf
        is_calm = under_way <= enough - scale.requests
        self._calm_since = min(self._calm_since, now) if is_calm else math.inf
        change = 0
        if now - self._busy_since >= scale.up_after_s and there >= self.replicas < scale.most:
            change = 1
        elif now - self._calm_since >= scale.down_after_s and self.replicas > scale.least:
            change = -1
        if change:
            self.replicas += change
            self._busy_since = self._calm_since = math.inf
        return bool(change)
