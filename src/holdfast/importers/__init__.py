"""Importers of queues and messages from other systems: LedgerQ and RabbitMQ."""
