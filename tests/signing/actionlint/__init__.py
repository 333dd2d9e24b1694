"""actionlint, built from the pins in go.mod."""

from pathlib import Path

from tests.support.go_programs import built

HERE = Path(__file__).resolve().parent


def find() -> Path:
    """Return the program. Raises go_programs.Missing."""
    packages = {"actionlint": "github.com/rhysd/actionlint/cmd/actionlint"}
    without = "the tests of the workflows need Go 1.26 (https://go.dev/dl)"
    return built(HERE, packages, without_go=without) / "actionlint"
