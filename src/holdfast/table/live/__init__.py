"""Live updates of a table: watchers, sync and replication."""
