"""Models of records: fields, types, paths, validation, keys and indexes."""
