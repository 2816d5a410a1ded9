"""HTTP access to a served store: the API, RabbitMQ's management API, metrics, health checks and the page."""
