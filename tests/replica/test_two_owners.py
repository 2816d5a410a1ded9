"""Owners that are paused, cut off, slow and have clocks of their own: never do two of them own a replica at once."""

from collections.abc import Callable

import pytest

from holdfast.base.errors import ReplicaError, ReplicaFenced
from holdfast.replica.owner import OWNER, Identity, OwnerRecord, Ownership
from holdfast.testing import SimBucket
from tests.replica.world import SlowBucket, World, WorldClock
from tests.tiers import a_seed, rounds

_SECONDS = 400.0


class Process:
    """Claims the replica whenever it can, renews, and notes each moment in which it would confirm something."""

    def __init__(self, game: "Game", name: str) -> None:
        self._game = game
        self._name = name
        self._world = game.world
        self._clock = WorldClock(game.world)
        self._bucket = SlowBucket(game.world, game.bucket, game.note_effect)
        self._ownership: Ownership | None = None
        self._paused_until = 0.0
        self._lives = 0

    def jobs(self) -> list[Callable[[], None]]:
        return [self.own, self.confirm, self.suffer]

    def own(self) -> None:
        """The thread that claims and renews."""
        while True:
            self._lives += 1
            identity = Identity("store", self._name, self._name, self._name, 1, f"{self._name} {self._lives}")
            ownership = Ownership(self._bucket, self._clock, identity)
            try:
                ownership.claim()
                self._ownership = ownership
                until = self._world.now + self._world.random.uniform(20, 200)
                while self._world.now < until:
                    self._rest(1)
                    try:
                        ownership.renew_if_due()
                    except ReplicaFenced:
                        break
                    except ReplicaError:
                        continue
                if self._world.random.random() < 0.5:
                    self._ownership = None
                    ownership.release()
            except ReplicaError:
                pass
            self._ownership = None  # the process ends, and is started again
            self._rest(self._world.random.uniform(0, 10))

    def confirm(self) -> None:
        """The thread that confirms messages."""
        while True:
            self._rest(0.1)
            ownership = self._ownership
            if ownership is not None:
                try:
                    ownership.check()
                except ReplicaFenced:
                    continue
                self._game.note_confirm(ownership.epoch)

    def suffer(self) -> None:
        """Pauses of the whole process, and of its network."""
        random = self._world.random
        while True:
            self._world.sleep(random.uniform(5, 60))
            if random.random() < 0.5:
                self._paused_until = self._world.now + random.uniform(1, 40)
            else:
                self._bucket.cut_off_until = self._world.now + random.uniform(1, 40)

    def _rest(self, seconds: float) -> None:
        self._world.sleep(seconds)
        while self._world.now < self._paused_until:
            self._world.sleep(self._paused_until - self._world.now)


class Game:
    """One run: who confirmed when, and when each epoch began."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.bucket = SimBucket(seed)
        self.began: dict[int, float] = {}
        self.confirms = 0
        self.owners: set[int] = set()

    def play(self) -> None:
        jobs = [job for name in ("first", "second", "third") for job in Process(self, name).jobs()]
        self.world.run(jobs, _SECONDS)

    def note_effect(self, key: str, content: bytes) -> None:
        if key == OWNER:
            epoch = OwnerRecord.decode(content, key).epoch
            self.began.setdefault(epoch, self.world.now)

    def note_confirm(self, epoch: int) -> None:
        self.confirms += 1
        self.owners.add(epoch)
        later = [other for other in self.began if other > epoch]
        assert not later, f"epoch {epoch} confirms at {self.world.now}, but {later} began at {self.began}"


@pytest.mark.parametrize("part", range(5))
def test_no_owner_confirms_once_another_has_the_replica(part: int) -> None:
    confirms = owners = 0
    runs = rounds(200, 6)
    for number in range(runs):
        seed = a_seed() + part * 1000 + number
        game = Game(seed)
        try:
            game.play()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        confirms += game.confirms
        owners += len(game.owners)
    assert confirms > 300 * runs, "they hardly ever own it"
    assert owners > 3 * runs, "it hardly ever changes hands"


def test_the_game_finds_an_owner_that_trusts_its_claim_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.replica.owner.MARGIN_S", -4.0)
    with pytest.raises(AssertionError, match="confirms at"):
        for seed in range(200):
            Game(seed).play()
