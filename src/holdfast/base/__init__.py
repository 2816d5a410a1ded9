"""What every room stands on: errors, clock, files, checksums, names and time arithmetic."""
