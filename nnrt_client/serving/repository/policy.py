"""Which versions of a model are served, and which of them a request goes to."""

from collections.abc import Collection, Mapping

from nnrt_client.serving.repository.model_settings import Latest, ModelSettings, Specific


def wanted_versions(settings: ModelSettings, there: Collection[int], failed: Collection[int]) -> list[int]:
    """Return the versions that should be served, newest first.

    Those that failed are among them, but the policy `Latest` goes on to older ones in their place. Versions of the
    canary come in addition.

    Args:
        settings: Settings of the model.
        there: Versions that are in the folder.
        failed: Versions that can't be loaded as they are.
    """
    newest_first = sorted(there, reverse=True)
    policy = settings.versions
    if policy is None:
        return newest_first
    if isinstance(policy, Specific):
        return [one for one in newest_first if one in policy.numbers or one in settings.canary]
    assert isinstance(policy, Latest)
    wanted, many = [], 0
    for number in newest_first:
        if number in settings.canary:
            wanted.append(number)
        elif many < policy.many:
            wanted.append(number)
            many += number not in failed
    return wanted


class Canary:
    """Sequence in which requests without a version go to versions with a share, and to the newest other one.

    It is no chance: with a share of 0.1 it is every tenth request.
    """

    def __init__(self, shares: Mapping[int, float]) -> None:
        """Begin a sequence."""
        self.shares = shares
        self._credits = dict.fromkeys(shares, 0.0)

    def next(self, ready: Collection[int]) -> int:
        """Return the version for the next request, of those that are ready, which are one at least."""
        for number, share in self.shares.items():
            if number in ready:
                self._credits[number] += share
        due = max((one for one in self._credits if one in ready), key=self._credits.__getitem__, default=None)
        if due is not None and self._credits[due] >= 1 - 1e-9:
            self._credits[due] -= 1
            return due
        return self.newest(ready)

    def newest(self, ready: Collection[int]) -> int:
        """Return the newest version that has no share; if there is none, the newest."""
        return max((one for one in ready if one not in self.shares), default=None) or max(ready)
