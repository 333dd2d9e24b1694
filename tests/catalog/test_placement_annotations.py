"""Every name of an annotation in the sources of schedulers has been reviewed: a new one fails here first."""

import json
from typing import Any

import pytest
import yaml

from tests.support.runtimes import RECORDED_OF_SCHEDULERS, SCHEDULERS
from webhook.catalog.device_annotations import PLACEMENT_ANNOTATIONS, PLACEMENT_LABELS, VENDOR_DOMAINS

REVIEWED: dict[str, Any] = {
    name: yaml.safe_load((RECORDED_OF_SCHEDULERS / f"{name}.yaml").read_text("utf-8")) for name in SCHEDULERS
}


def refused(name: str) -> bool:
    return name in PLACEMENT_ANNOTATIONS or name in PLACEMENT_LABELS


def reviewed(verdict: str) -> list[str]:
    return sorted({name for each in REVIEWED.values() for name in each[verdict]})


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_name_of_a_scheduler_was_reviewed_once(scheduler: str) -> None:
    names = json.loads((RECORDED_OF_SCHEDULERS / f"{scheduler}.json").read_text("utf-8"))["names"]
    assert sorted([*REVIEWED[scheduler]["choice"], *REVIEWED[scheduler]["harmless"]]) == names


@pytest.mark.parametrize("name", reviewed("choice"))
def test_every_choice_of_a_scheduler_is_in_the_tables(name: str) -> None:
    assert refused(name)


@pytest.mark.parametrize("name", reviewed("harmless"))
def test_no_harmless_name_of_a_scheduler_is_in_the_tables(name: str) -> None:
    assert not refused(name)


@pytest.mark.parametrize("domain", VENDOR_DOMAINS)
def test_a_new_name_in_the_domain_of_a_vendor_is_refused_before_it_is_known(domain: str) -> None:
    assert refused(f"{domain}/another-choice")
    assert not any(map(refused, (domain, f"{domain}/use-gpuuuid", f"{domain}/nouse-gpuuuid", f"x.{domain}/a")))


def test_a_new_name_like_one_for_users_is_refused_too() -> None:
    assert refused("metax-tech.com/sgpu-devices")


@pytest.mark.parametrize("name", ["dcunum", "dcumem", "dcucores", "hcunum", "hcumem", "hcucores"])
def test_what_a_container_has_of_a_card_of_hygon_is_refused_whatever_its_name(name: str) -> None:
    assert refused(f"main-hygon.com/{name}")
    assert not refused(f"main-hygon.com/{name}.note")
