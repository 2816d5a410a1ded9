"""Queues that programs created in the store: a declaration or definition of such a queue must agree with them."""

from typing import TYPE_CHECKING

from holdfast.broker.queue_arguments import check_chosen, check_equivalent, check_same_arguments
from holdfast.broker.store_names import name_in_store
from holdfast.broker.topology import QueueDefinition

if TYPE_CHECKING:
    from holdfast.store import Store

__all__ = ["check_program_queue"]


def check_program_queue(store: "Store", wanted: QueueDefinition) -> None:
    """Raise 406 if a declaration contradicts the queue of this name that a program created.

    An argument that is not given contradicts nothing. But a program's queue is durable, not exclusive, and never
    deleted automatically: a declaration that differs there would hide it, or delete it with its messages.
    """
    what, name = str(wanted), name_in_store(wanted.vhost, wanted.name)
    queues = store.queue_registry
    chosen = queues.chosen_for(name)
    if chosen is None:
        return
    if queues.is_programs(name):  # else the server failed to create it, and its remains belong to no program
        check_equivalent(what, "exclusive", wanted.exclusive, current=False)
        check_equivalent(what, "durable", wanted.durable, current=True)
        check_equivalent(what, "auto_delete", wanted.auto_delete, current=False)
        check_same_arguments(what, ("x-expires",), wanted.arguments, {})
    if wanted.kept:
        check_chosen(what, wanted.settings, wanted.arguments, chosen)
