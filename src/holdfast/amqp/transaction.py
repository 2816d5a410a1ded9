"""What does a transaction of a channel hold back? Its publishes and its acks, until they are committed."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from holdfast.amqp.methods import BasicPublish
from holdfast.amqp.unacked import Taken, Unacked
from holdfast.base.errors import HoldfastError
from holdfast.broker.errors import InternalError
from holdfast.broker.message import instructions_in
from holdfast.log.log import Log

if TYPE_CHECKING:
    from holdfast.amqp.channel import Channel

__all__ = ["Transaction"]

Settlement = Literal["ack", "requeue", "reject"]


class Transaction:
    """The open transaction of one channel of one connection.

    As in RabbitMQ, a commit is atomic for each queue only: a crash in its middle may leave some queues without.
    """

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel
        self._publishes: list[tuple[BasicPublish, bytes, list[bytes]]] = []
        self._settled: list[tuple[Settlement, list[Taken]]] = []
        self._before: Unacked | None = None
        """What was unsettled when the transaction settled something first."""

    def publish(self, method: BasicPublish, raw: bytes, bodies: list[bytes]) -> None:
        """Messages to be published."""
        self._publishes.append((method, raw, bodies))

    def begin_settling(self) -> None:
        """Deliveries are about to be taken from those that the channel holds."""
        if self._before is None:
            self._before = self._channel.unacked.copy()

    def settle(self, how: Settlement, taken: list[Taken]) -> None:
        """Deliveries to be settled."""
        self._settled.append((how, taken))

    def commit(self, done: Callable[[], None]) -> None:
        """Do it all, and call `done` when what is persistent is on disk."""
        channel = self._channel
        publishes, self._publishes = self._publishes, []
        settled, self._settled, self._before = self._settled, [], None
        logs: dict[Log, None] = {}
        for method, raw, bodies in publishes:
            channel.check_publish(method.exchange)
            logs.update(channel.publishing.publish(method, raw, instructions_in(raw), bodies))
        for how, taken in settled:
            getattr(channel, how)(taken)

        def then(error: HoldfastError | None) -> None:
            if error is not None:
                channel.connection.fail(InternalError(f"the transaction could not be made durable: {error}"))
            else:
                done()

        if logs:
            channel.sync(logs, then)
        else:
            done()

    def rollback(self) -> None:
        """Forget the publishes; the deliveries are held unsettled again."""
        self._publishes, self._settled = [], []
        if self._before is not None:
            self._channel.unacked.return_to(self._before)
            self._before = None
