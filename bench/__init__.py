"""The benchmarks, whose figures are in bench/README.md."""
