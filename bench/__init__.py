"""The benchmarks of the project. bench/README.md describes them."""
