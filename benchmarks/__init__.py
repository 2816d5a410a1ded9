"""How fast is Holdfast beside others? One module a benchmark, each run as `python -m benchmarks.<name>`."""
