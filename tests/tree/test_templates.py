"""The forms for issues: GitHub shows them, and each asks for what a maintainer needs."""

from pathlib import Path

import pytest
import yaml

from tests import ROOT

FORMS = sorted({*(ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")} - {ROOT / ".github/ISSUE_TEMPLATE/config.yml"})


def test_there_is_a_form_for_each_kind_of_report() -> None:
    assert [file.stem for file in FORMS] == ["bug", "false-denial", "workload-kind"]


@pytest.mark.parametrize("file", FORMS, ids=lambda file: str(file.stem))
def test_a_form_has_the_fields_that_github_asks_for(file: Path) -> None:
    form = yaml.safe_load(file.read_text("utf-8"))
    assert form.keys() == {"name", "description", "labels", "body"}
    assert len({field["id"] for field in form["body"]}) == len(form["body"])
    assert all(field["type"] in {"input", "textarea"} and field["attributes"]["label"] for field in form["body"])
    assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_a_way_to_a_gpu_is_reported_in_private() -> None:
    config = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/config.yml").read_text("utf-8"))
    (link,) = config["contact_links"]
    assert "SECURITY.md" in link["about"]
    assert "## Report a flaw" in (ROOT / "SECURITY.md").read_text("utf-8")
