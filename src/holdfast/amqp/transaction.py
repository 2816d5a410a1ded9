"""What does a transaction of a channel hold back? Its publishes and its acks, until they are committed."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from holdfast.amqp.methods import BasicPublish
from holdfast.amqp.unacked import Taken
from holdfast.base.errors import HoldfastError
from holdfast.broker.errors import InternalError, PreconditionFailed
from holdfast.broker.message import Instructions
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
        self._publishes: list[tuple[BasicPublish, Instructions, list[bytes]]] = []
        self._settled: list[tuple[Settlement, list[Taken]]] = []

    def publish(self, method: BasicPublish, wishes: Instructions, bodies: list[bytes]) -> None:
        """Messages to be published."""
        self._publishes.append((method, wishes, bodies))

    def settle(self, how: Settlement, taken: list[Taken]) -> None:
        """Deliveries to be settled."""
        self._settled.append((how, taken))

    def commit(self, done: Callable[[], None]) -> None:
        """Do it all, and call `done` when what is persistent is on disk."""
        channel = self._channel
        for method, _, _ in self._publishes:  # before anything is done: an exchange may have gone meanwhile
            channel.check_publish(method.exchange)
        publishes, self._publishes = self._publishes, []
        logs: dict[Log, None] = {}
        partial = False
        for method, wishes, bodies in publishes:
            touched, refused = channel.publishing.publish(method, wishes, bodies)
            logs.update(touched)
            partial = partial or refused
        # Not before all is published: where that fails, what was acknowledged comes back with the end of the channel.
        settled, self._settled = self._settled, []
        for how, taken in settled:
            getattr(channel, how)(taken)

        def then(error: HoldfastError | None) -> None:
            if not channel.closing:
                if error is not None:
                    channel.connection.fail(InternalError(f"the transaction could not be made durable: {error}"))
                elif partial:  # a full queue took only some of it
                    channel.connection.refuse(PreconditionFailed("partial tx completion"), channel)
                else:
                    done()
            channel.connection.release("commit")

        if logs:
            channel.connection.hold("commit")  # what the client says next is answered after this
            channel.connection.broker.sync(logs, then, small=False)
        else:
            then(None)

    def rollback(self) -> None:
        """Forget the publishes; the deliveries are held unsettled again."""
        settled, self._publishes, self._settled = self._settled, [], []
        for _, taken in settled:
            self._channel.unacked.put_back(taken, self._channel.now())
