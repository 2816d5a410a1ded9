"""How is a served store looked at and acted on from outside? HTTP: an API, metrics, health checks and a page."""
