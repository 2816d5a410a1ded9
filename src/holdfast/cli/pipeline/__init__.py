"""The commands of `holdfast pipeline`."""
