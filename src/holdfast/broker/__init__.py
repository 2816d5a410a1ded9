"""The broker: virtual hosts, exchanges, bindings and users over the queues of a store, without any networking."""

__all__: list[str] = []
