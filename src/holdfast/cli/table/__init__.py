"""The commands of `holdfast table`."""
