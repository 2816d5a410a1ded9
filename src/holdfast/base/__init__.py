"""Foundations of all packages: errors, clock, files, checksums, names, versions and metrics."""
