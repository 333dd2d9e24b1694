"""The certificates of the manifests as they stand in Git; tests/e2e has them judged by an API server."""

import yaml

import certs
from tests import ROOT
from tests.support.command_lines import read as read_command
from tests.support.manifests import BASE, OVERLAYS, read
from tests.support.objects import Object

PAGE = (ROOT / "docs" / "certificates.md").read_text("utf-8")
HOME = "slicewarden-system"
CONTROLLER = ROOT / "manifests" / "controller"
CERT_MANAGERS = read(OVERLAYS / "cert-manager" / "certificates.yaml")
BY_NAME = {(each["kind"], each["metadata"]["name"]): each for each in CERT_MANAGERS}
WEBHOOK: Object = next(each for each in read(BASE / "deployment.yaml") if each["kind"] == "Deployment")
KEPT = read_command("certs", "keep")


def test_every_object_of_cert_managers_has_our_label() -> None:
    assert all(each["metadata"]["labels"] == {"app.kubernetes.io/part-of": "slicewarden"} for each in CERT_MANAGERS)
    assert {each["metadata"]["namespace"] for each in CERT_MANAGERS} == {HOME}


# The Secrets of the controller


def test_the_secrets_are_empty_so_that_an_apply_leaves_what_is_in_them() -> None:
    secrets = [each for each in read(CONTROLLER / "registration.yaml") if each["kind"] == "Secret"]
    assert [each["metadata"]["name"] for each in secrets] == [KEPT["ca_secret_name"], KEPT["secret_name"]]
    assert all(each.keys() == {"apiVersion", "kind", "metadata", "type"} for each in secrets)


def test_the_webhook_mounts_what_is_served_and_never_a_ca() -> None:
    (mounted,) = [each["secret"] for each in WEBHOOK["spec"]["template"]["spec"]["volumes"] if "secret" in each]
    assert mounted["secretName"] == KEPT["secret_name"]
    assert [each["key"] for each in mounted["items"]] == ["tls.crt", "tls.key"]
    (controller,) = read(CONTROLLER / "deployment.yaml")
    assert not any("secret" in each for each in controller["spec"]["template"]["spec"]["volumes"])


# cert-manager


def test_cert_manager_issues_what_the_webhook_is_asked_for() -> None:
    spec = BY_NAME["Certificate", "slicewarden"]["spec"]
    assert tuple(spec["dnsNames"]) == certs.service_names("slicewarden", HOME)
    assert (hours(spec["duration"]), hours(spec["renewBefore"])) == (90 * 24, 30 * 24)
    assert spec["usages"] == ["digital signature", "server auth"]


def test_the_ca_of_cert_manager_signs_only_our_certificate_and_keeps_its_key() -> None:
    """A certificate signed before the renewal verifies by the renewed one: same name, same key."""
    ca, issuer = BY_NAME["Certificate", "slicewarden-ca"]["spec"], BY_NAME["Issuer", "slicewarden"]["spec"]
    assert issuer == {"ca": {"secretName": ca["secretName"]}}
    assert ca["isCA"] is True
    assert ca["privateKey"]["rotationPolicy"] == "Never"
    assert hours(ca["renewBefore"]) > 90 * 24  # nothing that it signs outlives it
    for name, by in (("slicewarden", "slicewarden"), ("slicewarden-ca", "slicewarden-self-signed")):
        assert BY_NAME["Certificate", name]["spec"]["issuerRef"]["name"] == by
        assert ("Issuer", by) in BY_NAME
    secrets = {each["spec"]["secretName"] for each in CERT_MANAGERS if each["kind"] == "Certificate"}
    assert secrets.isdisjoint({KEPT["ca_secret_name"], KEPT["secret_name"]})  # going over, none is in the other's way


def test_webhooks_get_the_ca_of_cert_manager_by_its_annotation_and_by_the_controller() -> None:
    (kustomization,) = read(OVERLAYS / "cert-manager" / "kustomization.yaml")
    webhook, controller, *halves = kustomization["patches"]
    certificate = BY_NAME["Certificate", "slicewarden"]["spec"]["secretName"]
    (_, mounted) = yaml.safe_load(webhook["patch"])
    assert mounted["value"] == certificate
    _, *added = yaml.safe_load(controller["patch"])
    assert read_command("controller", *(each["value"] for each in added))["ca_secret"] == certificate
    for kind, patch in zip(("Mutating", "Validating"), halves, strict=True):
        assert patch["target"]["kind"] == f"{kind}WebhookConfiguration"
        annotations = yaml.safe_load(patch["patch"])["metadata"]["annotations"]
        assert annotations == {"cert-manager.io/inject-ca-from": f"{HOME}/slicewarden"}


def hours(duration: str) -> int:
    assert duration.endswith("h")
    return int(duration[:-1])


# The page


def test_the_page_on_certificates_names_existing_objects() -> None:
    named = (KEPT["ca_secret_name"], KEPT["secret_name"], "slicewarden-tls", "inject-ca-from")
    assert [each for each in named if each not in PAGE] == []
    commands = [line.split()[1:] for line in PAGE.splitlines() if line.startswith("slicewarden certs keep")]
    assert [read_command(*each)["service"] for each in commands] == ["slicewarden"] * 4
