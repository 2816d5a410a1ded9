"""AMQP transactions: publishes and acknowledgements of a channel, held back until tx.commit."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from holdfast.amqp.methods import BasicPublish
from holdfast.amqp.unacked import Taken
from holdfast.base.errors import HoldfastError
from holdfast.broker.errors import InternalError, PreconditionFailed
from holdfast.broker.message import Instructions
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.log.log import Log

if TYPE_CHECKING:
    from holdfast.amqp.channel import Channel

__all__ = ["Transaction"]

Settlement = Literal["ack", "requeue", "reject"]


class Transaction:
    """The open transaction of one channel.

    As in RabbitMQ, a commit is not atomic across queues: a crash in its middle may leave only a part of it.
    """

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel
        self._publishes: list[tuple[BasicPublish, Instructions, list[bytes], list[BrokerQueue]]] = []
        self._settled: list[tuple[Settlement, list[Taken]]] = []

    def publish(
        self, method: BasicPublish, directives: Instructions, bodies: list[bytes], targets: list[BrokerQueue]
    ) -> None:
        """Add messages for these queues, whatever happens to their exchange and its bindings meanwhile."""
        self._publishes.append((method, directives, bodies, targets))

    def settle(self, how: Settlement, taken: list[Taken]) -> None:
        """Add deliveries to settle."""
        self._settled.append((how, taken))

    def commit(self, done: Callable[[], None]) -> None:
        """Publish and settle everything, and call `done` when the persistent messages are on disk.

        Settlements are not synced. If the sync fails, the connection is closed with 541; if a full queue refused
        messages, the channel is closed with 406. `done` is not called then.
        """
        channel = self._channel
        publishes, self._publishes = self._publishes, []
        logs: dict[Log, None] = {}
        partial = False
        broker_queues = channel.host.broker_queues
        for method, directives, bodies, targets in publishes:
            # By name, as in RabbitMQ: a queue may have been deleted meanwhile, or recreated under the same name.
            left = [broker_queues[one.name] for one in targets if one.name in broker_queues]
            touched, refused = channel.publishing.publish(method, directives, bodies, left)
            logs.update(touched)
            partial = partial or refused
        # Not before all is published: if that fails, the end of the channel requeues the acknowledged messages.
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
            channel.connection.hold("commit")  # the client's next request is answered after this
            channel.connection.broker.turns.when_durable(logs, then)
        else:
            then(None)

    def rollback(self) -> None:
        """Discard the publishes; the deliveries are unsettled again."""
        settled, self._publishes, self._settled = self._settled, [], []
        for _, taken in settled:
            self._channel.unacked.put_back(taken, self._channel.now())
