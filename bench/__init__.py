"""The benchmarks that the README's figures come from."""
