"""Returns the installed release of Slicewarden. There is none if the files were only copied."""

from importlib.metadata import PackageNotFoundError, version

from webhook.model import Problem, Unusable

UNKNOWN = "unknown"
"""The release that is recorded if the package is not installed."""


def known() -> str:
    """Return the release, or UNKNOWN."""
    try:
        return version("slicewarden")
    except PackageNotFoundError:
        return UNKNOWN


def needed() -> str:
    """Return the release. Raises Unusable if the package is not installed, with the command that installs it."""
    if (release := known()) == UNKNOWN:
        way = "run 'python -m pip install .' in the folder of its pyproject.toml"
        raise Unusable((Problem("slicewarden", 0, f"the package is not installed, so its version is unknown; {way}"),))
    return release
