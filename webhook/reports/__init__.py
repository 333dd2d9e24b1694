"""Reports: one file a format, each a function from a Report to text."""

from collections.abc import Callable, Mapping

from webhook.check import Report
from webhook.reports import json, table

FORMATS: Mapping[str, Callable[[Report], str]] = {"table": table.render, "json": json.render}
