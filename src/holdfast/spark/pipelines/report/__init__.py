"""HTML reports of the lifecycle and dead-letter pipelines."""
