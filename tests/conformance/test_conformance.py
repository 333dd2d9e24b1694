"""`invalid-sharing-config` fires exactly when NVIDIA's device plugin would not start: both asked, side by side.

Not compared is what the rule says that it does not read, by bounds of its own: a text of more values or more depth
than any configuration, one with a byte order mark inside or with a tag, ? or : on which readers differ, and UTF-16 with
anything wrong in it. Some things lie beyond the text: MPS_ROOT is set, as the Helm chart and the GPU Operator set it,
and the node has NVML. The pinned version of the plugin does not know `sharedDevicesAllocationPolicy` yet.
"""

import pytest
from hypothesis import given

from tests.conformance.configs import FAMILY, families
from tests.conformance.device_plugin import DevicePlugin
from tests.conformance.record import Verdicts, asked, recorded
from tests.conformance.rule import UNREAD, engine, findings
from tests.support.records import trying
from webhook.policy.model import Policy

EXAMPLES = 5_000


@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # a family's, which would hide its failure
@trying(EXAMPLES // FAMILY)
@given(families())
def test_the_rule_agrees_with_the_device_plugin(
    device_plugin: DevicePlugin, sample_policy: Policy, family: list[str | bytes]
) -> None:
    judge = engine(sample_policy)
    for config in family:
        said = findings(judge, config)
        if any(UNREAD in message for message in said):
            continue
        refusal = device_plugin.refusal(config if isinstance(config, bytes) else config.encode())
        assert bool(said) == bool(refusal), f"the device plugin says {refusal!r}, the rule {said!r}, of {config!r}"


def test_the_record_is_what_the_device_plugin_says(device_plugin: DevicePlugin) -> None:
    assert verdicts(asked(device_plugin)) == verdicts(recorded())


def verdicts(record: Verdicts) -> dict[str, bool]:
    """Whether each configuration is refused; of several errors Go names any."""
    return {text: bool(refusal) for texts in record.values() for text, refusal in texts.items()}
