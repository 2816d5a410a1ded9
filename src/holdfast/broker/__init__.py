"""The broker: virtual hosts, exchanges, bindings and users over the queues of a store, without a socket in sight."""

__all__: list[str] = []
