"""Reads of a table: filters, planning, scans, aggregations, history."""
