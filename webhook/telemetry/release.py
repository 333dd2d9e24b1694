"""The installed release of Slicewarden; files that are only copied have none."""

from importlib.metadata import PackageNotFoundError, version

from webhook.model import Problem, Unusable

UNKNOWN = "unknown"
"""Stands where a release is only recorded, and the package is not installed."""


def known() -> str:
    """Return the release, or UNKNOWN."""
    try:
        return version("slicewarden")
    except PackageNotFoundError:
        return UNKNOWN


def needed() -> str:
    """Return the release. Raises Unusable, with what installs the package, where it is not installed."""
    if (release := known()) == UNKNOWN:
        way = "run 'python -m pip install .' in the folder of its pyproject.toml"
        raise Unusable((Problem("slicewarden", 0, f"the package is not installed, so its version is unknown; {way}"),))
    return release
