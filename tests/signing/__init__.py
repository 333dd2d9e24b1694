"""cosign, built from the pins in go.mod, which signs statements and verifies them. `make nightly` runs these tests."""
