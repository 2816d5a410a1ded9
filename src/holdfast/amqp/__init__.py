"""The AMQP 0-9-1 door: frames and methods as pure functions, and the server that speaks them."""

__all__: list[str] = []
