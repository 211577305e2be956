"""Even shares of the device's time among those who want it, by the time they really take."""

from typing import Generic, TypeVar


class Party:
    """One of those who share: how many of its runs wait, how many are on the device, and what it has spent there.

    Seconds `spent` lack, for each run on the device, the moment it began: `spent + running * now` is right at any time.
    """

    __slots__ = ("__weakref__", "last_start", "running", "spent", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.running = 0
        self.spent = 0.0
        self.last_start = 0  # Which of all starts was its last.


# Of the clock, where 1 is the pace of an even share. With that, a client that has one run at a time would pay for the
# moments in which it reads the result and sends the next; the less it is, the more can newcomers take from the others.
_PACE = 0.5

PartyT = TypeVar("PartyT", bound=Party)


class Shares(Generic[PartyT]):
    """Whoever has spent least goes next: start-time fair queueing (Goyal, Vin, Cheng 1996). Not safe for threads.

    A party that comes, or had nothing waiting when others were served, has spent at least what the clock says: nobody
    saves up by idling. The clock never stands behind who is served, and goes on by itself, slower than an even share
    grows: it overtakes what anybody has spent, so that not even an endless row of newcomers holds up a party that
    waits.
    """

    __slots__ = ("_active", "_clock", "_looked_at", "_running", "_starts", "_waiting")

    def __init__(self) -> None:
        self._clock = 0.0
        self._looked_at = 0.0
        self._active = 0  # Parties with a run that waits or is on the device.
        self._running = 0
        self._starts = 0
        self._waiting: dict[PartyT, None] = {}  # A set in the order in which they began to wait.

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    def next(self, now: float) -> PartyT:
        """Whose run starts next, of those with one that waits."""
        return min(self._waiting, key=lambda party: party.spent + party.running * now)

    def is_ahead(self, party: PartyT) -> bool:
        """Whether a party that is idle has spent more than it would begin with if it was new."""
        return party.spent > self._clock

    def wait(self, party: PartyT, now: float) -> None:
        """A run of the party begins to wait."""
        self._advance(now)
        self._join(party, now)
        party.waiting += 1
        self._waiting[party] = None

    def leave(self, party: PartyT, now: float) -> None:
        """A run of the party waits no more; if it was its turn, after `start`."""
        self._advance(now)
        party.waiting -= 1
        if not party.waiting:
            del self._waiting[party]
            if not party.running:
                self._active -= 1

    def start(self, party: PartyT, now: float) -> None:
        """A run of the party starts."""
        self._advance(now)
        self._join(party, now)
        spent = party.spent + party.running * now
        if spent > self._clock:
            self._clock = spent
        party.spent -= now
        party.running += 1
        self._running += 1
        self._starts += 1
        party.last_start = self._starts

    def stop(self, party: PartyT, now: float) -> None:
        """A run of the party leaves the device."""
        self._advance(now)
        party.spent += now
        party.running -= 1
        self._running -= 1
        if not (party.running or party.waiting):
            self._active -= 1

    def _advance(self, now: float) -> None:
        if self._running:
            self._clock += _PACE * (now - self._looked_at) * self._running / self._active
        self._looked_at = now

    def _join(self, party: PartyT, now: float) -> None:
        if party.waiting or (party.running and party.last_start == self._starts):
            return
        if not party.running:
            self._active += 1
        party.spent = max(party.spent, self._clock - party.running * now)
