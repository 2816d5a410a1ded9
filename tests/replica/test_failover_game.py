"""Owner and standbys as processes in simulated time: pauses, partitions, kills, lost answers and clocks of their own.

Never do two epochs confirm at the same time, at most what was not shipped is lost, and each takeover ends in an open
store.
"""

import contextlib
from collections.abc import Callable

import pytest

import holdfast
from holdfast import HoldfastError, NotFound, ReplicaFenced, ReplicaUnavailable, Store
from holdfast.replica import Standby
from holdfast.replica.owner import OWNER, OwnerRecord
from holdfast.replica.standby import is_owner
from holdfast.testing import SimBucket, SimFiles
from tests.replica.world import SlowBucket, World, WorldClock
from tests.tiers import ALL, a_seed

_SECONDS = 400.0
_PARTS = 10
_RUNS = 100 if ALL else 3
"""Runs of each part: 1,000 in all."""


class Machine:
    """A machine with a disk: serves if it owns the replica, else follows. Dies, is paused, and is cut off."""

    def __init__(self, game: "Game", number: int) -> None:
        self._game = game
        self._world = game.world
        self._number = number
        self._clock = WorldClock(game.world)
        self._bucket = SlowBucket(game.world, game.bucket, game.note_effect)
        self._files = SimFiles(number)
        self._path = f"machine-{number}"
        self._store: Store | None = None
        self._life = 0
        self._dies_at = float("inf")
        self._paused_until = 0.0

    def jobs(self) -> list[Callable[[], None]]:
        return [self.live, self.write, self.suffer]

    def live(self) -> None:
        """The process, again and again."""
        while True:
            self._life += 1
            self._dies_at = self._world.now + self._world.random.uniform(30, 250)
            try:
                self._serve_or_follow()
            except (ReplicaFenced, ReplicaUnavailable, _Killed) as error:
                self._game.note(f"{self._path} ends: {type(error).__name__} {error}")
                self._end(killed=isinstance(error, _Killed))
                if isinstance(error, ReplicaFenced) and "keeps it" in str(error):  # the operator moves the folder away
                    # Another seed than that of any machine: it decides the ids, which must differ.
                    self._files = SimFiles(1000 * (self._number + 1) + self._life)
            self._rest(self._world.random.uniform(0.5, 80))

    def _serve_or_follow(self) -> None:
        if (self._life > 1 or self._number > 0) and not is_owner(self._bucket, self._path, files=self._files):
            self._follow()
            return
        self._serve(holdfast.open(self._path, files=self._files, clock=self._clock, background=False))

    def _follow(self) -> None:
        standby = Standby(self._bucket, self._path, files=self._files, clock=self._clock)
        try:
            while True:
                self._step()
                with contextlib.suppress(ReplicaUnavailable, NotFound):
                    if standby.tick():
                        break
        except _Killed:
            standby.abandon()
            raise
        except BaseException:
            standby.close()
            raise
        self._game.takeovers += 1
        self._game.note(f"{self._path} has taken over: {standby.status()}")
        standby.close()
        self._serve(holdfast.open(self._path, files=self._files, clock=self._clock, background=False))

    def _serve(self, store: Store) -> None:
        """Ship and renew, until the process ends or is fenced."""
        try:
            store.ship_to(self._bucket)
        except HoldfastError:
            store.close()
            raise
        self._store = store
        is_noted = False
        while True:
            # Not if the bucket was away at the start, and not if the claim has run out since.
            if not is_noted and store.replica.ownership.role == "owner" and store.replica.may_confirm:
                is_noted = True
                found = {message.payload for message in store.queue("work").peek(100_000)}
                self._game.note_served(store.replica.ownership.epoch, found)
            self._step()
            store.replica.tick()
            if store.replica.lost is not None:
                raise ReplicaFenced(store.replica.lost)

    def _end(self, *, killed: bool) -> None:
        store, self._store = self._store, None
        if killed:  # what is on the disk stays; this process does nothing more
            self._files = self._files.after_crash("reordered", self._life)
        elif store is not None:
            store.close()

    def write(self) -> None:
        """The clients: each message is confirmed when it is on the disk, and the process may confirm."""
        number = 0
        while True:
            self._rest(0.5)
            store = self._store
            if store is None or store.closing:
                continue
            number += 1
            replica = store.replica
            payload = b"%d %d %d %.3f" % (replica.ownership.epoch, self._number, number, self._world.now)
            try:
                store.queue("work").put(payload)
            except HoldfastError:
                continue
            if replica.may_confirm:
                self._game.note_confirm(self._path, replica.ownership.epoch, payload, self._clock.time_ns())
                if replica.ownership.role == "owner":
                    self._game.note_shipped(replica.ownership.epoch, replica.status().shipped_at or 0)

    def suffer(self) -> None:
        random = self._world.random
        while True:
            self._world.sleep(random.uniform(10, 70))
            kind = random.random()
            if kind < 0.4:
                self._paused_until = self._world.now + random.uniform(1, 45)
            elif kind < 0.8:
                self._bucket.cut_off_until = self._world.now + random.uniform(1, 45)
            else:
                self._dies_at = self._world.now

    def _step(self) -> None:
        self._rest(1.0)
        if self._world.now >= self._dies_at:
            raise _Killed

    def _rest(self, seconds: float) -> None:
        self._world.sleep(seconds)
        while self._world.now < self._paused_until:
            self._world.sleep(self._paused_until - self._world.now)


class _Killed(Exception):
    """The process ends at once."""


class Game:
    """One run: who confirmed what and when, and when each epoch began."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.bucket = SimBucket(seed)
        self.began: dict[int, tuple[float, str]] = {}
        """By epoch: when, and where."""
        self.confirmed: dict[bytes, tuple[int, float, int]] = {}
        """By payload: epoch, time in the world, and time by the clock of the owner."""
        self.shipped: dict[int, int] = {}
        """By epoch: up to when the owner said that all is in the bucket, while its claim was valid."""
        self.confirms = self.takeovers = self.served = self.lost = 0
        self.log: list[str] = []

    def play(self) -> None:
        machines = [Machine(self, number) for number in range(3)]
        self.world.run([job for one in machines for job in one.jobs()], _SECONDS)

    def note(self, text: str) -> None:
        self.log.append(f"{self.world.now:.2f} {text}")

    def note_effect(self, key: str, content: bytes) -> None:
        if key == OWNER:
            record = OwnerRecord.decode(content, key)
            if record.epoch not in self.began:
                self.began[record.epoch] = self.world.now, record.place
                self.note(f"epoch {record.epoch} begins")

    def note_shipped(self, epoch: int, when: int) -> None:
        self.shipped[epoch] = max(self.shipped.get(epoch, 0), when)

    def note_confirm(self, path: str, epoch: int, payload: bytes, when: int) -> None:
        self.confirms += 1
        # An owner that was restarted while the bucket was away, or did not get the answer to its claim, knows less.
        epoch = max([epoch, *(known for known, (_, place) in self.began.items() if place.endswith(path))])
        later = [other for other in self.began if other > epoch]
        assert not later, f"epoch {epoch} confirms at {self.world.now}, but {later} began at {self.began}"
        self.confirmed[payload] = (epoch, self.world.now, when)

    def note_served(self, epoch: int, found: set[bytes]) -> None:
        """What is lost was reported as lag: it was confirmed after the time up to which all was in the bucket."""
        self.served += 1
        for payload in [one for one in self.confirmed if one not in found]:
            before, at, when = self.confirmed.pop(payload)
            self.lost += 1
            shipped = self.shipped.get(before, 0)
            assert when >= shipped, f"epoch {epoch} lacks {payload!r}, confirmed at {at}: it was shipped by {shipped}"


@pytest.mark.parametrize("part", range(_PARTS))
def test_never_do_two_owners_confirm_and_each_takeover_serves(part: int) -> None:
    confirms = takeovers = served = 0
    for number in range(_RUNS):
        seed = a_seed() + part * 1000 + number
        game = Game(seed)
        try:
            game.play()
        except BaseException as error:
            error.add_note(f"seed {seed}\n" + "\n".join(game.log[-40:]))
            raise
        confirms += game.confirms
        takeovers += game.takeovers
        served += game.served
    assert confirms > 50 * _RUNS, "they hardly ever confirm"
    assert takeovers > _RUNS / 3, "hardly ever does a standby take over"
    assert served > takeovers / 2, "takeovers do not end in a served store"
