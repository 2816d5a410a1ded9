"""Backup and restore of a store."""
