"""Queues that programs made in the store: a declaration or definition of such a queue must agree with the program."""

from typing import TYPE_CHECKING

from holdfast.broker.arguments import check_chosen
from holdfast.broker.names import name_in_store
from holdfast.broker.topology import QueueDefinition

if TYPE_CHECKING:
    from holdfast.store import Store

__all__ = ["check_program_queue"]


def check_program_queue(store: "Store", wanted: QueueDefinition) -> None:
    """406 where a queue that AMQP does not know yet contradicts the queue of this name that a program made.

    To say nothing of a setting contradicts nothing.
    """
    name = name_in_store(wanted.vhost, wanted.name)
    chosen = store.chosen_for(name)
    if chosen is not None:
        check_chosen(str(wanted), wanted.settings, wanted.arguments, chosen)
