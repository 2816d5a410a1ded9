"""The AMQP 0-9-1 server: frames and methods as pure functions, connections, channels, and import from RabbitMQ."""

__all__: list[str] = []
