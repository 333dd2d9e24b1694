"""The manifests of certificates as they stand in Git; tests/e2e has them judged by an API server."""

from pathlib import Path

import yaml

import certs
from tests import ROOT
from tests.support.command_lines import read as read_command
from tests.support.manifests import BASE, COMPONENTS, OVERLAYS, read
from tests.support.objects import Object

PAGE = (ROOT / "docs" / "certificates.md").read_text("utf-8")
HOME, OURS = "slicewarden-system", "slicewarden-certificates"


OBJECTS = read(COMPONENTS / "certificates" / "certificates.yaml")
CERT_MANAGERS = read(OVERLAYS / "cert-manager" / "certificates.yaml")
BY_NAME = {(each["kind"], each["metadata"]["name"]): each for each in (*OBJECTS, *CERT_MANAGERS)}
JOB: Object = BY_NAME["CronJob", OURS]["spec"]["jobTemplate"]["spec"]["template"]
WEBHOOK: Object = next(each for each in read(BASE / "deployment.yaml") if each["kind"] == "Deployment")


ARGUMENTS = JOB["spec"]["containers"][0]["args"]
OPTIONS = read_command(*ARGUMENTS)


def patched(overlay: Path) -> Object:
    """Return what a kustomization's patch says."""
    (kustomization,) = read(overlay / "kustomization.yaml")
    return dict(yaml.safe_load(kustomization["patches"][0]["patch"]))


# The job


def test_every_object_of_the_component_has_our_label() -> None:
    assert all(each["metadata"]["labels"] == {"app.kubernetes.io/part-of": "slicewarden"} for each in BY_NAME.values())
    homes = {each["metadata"].get("namespace") for each in BY_NAME.values() if not each["kind"].startswith("Cluster")}
    assert homes == {HOME}


def test_the_cron_job_may_only_write_the_objects_that_it_keeps() -> None:
    (secrets,) = BY_NAME["Role", OURS]["rules"]
    assert secrets == {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": [OPTIONS["ca_secret_name"], OPTIONS["secret_name"]],
        "verbs": ["get", "patch"],
    }
    (configurations,) = BY_NAME["ClusterRole", OURS]["rules"]
    assert configurations["resourceNames"] == [OPTIONS["configuration"]]
    assert configurations["verbs"] == ["get", "patch"]
    for kind in ("Role", "ClusterRole"):
        binding = BY_NAME[f"{kind}Binding", OURS]
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (kind, OURS)
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": OURS, "namespace": HOME}]


def test_the_cron_job_runs_more_often_than_renewal_needs() -> None:
    assert JOB["spec"]["containers"][0]["args"][0] == "certs"
    assert (ARGUMENTS[:2], OPTIONS["namespace"], OPTIONS["service"]) == (["certs", "keep"], HOME, "slicewarden")
    assert (OPTIONS["rotate_ca"], OPTIONS["renews"], OPTIONS["dry_run"]) == (False, False, False)
    minute, *rest = BY_NAME["CronJob", OURS]["spec"]["schedule"].split()
    assert minute.isdigit()
    assert rest == ["*"] * 4
    assert BY_NAME["CronJob", OURS]["spec"]["concurrencyPolicy"] == "Forbid"


def test_the_cron_job_is_as_restricted_as_the_webhook() -> None:
    spec, other = JOB["spec"], WEBHOOK["spec"]["template"]["spec"]
    assert spec["securityContext"] == {key: other["securityContext"][key] for key in spec["securityContext"]}
    assert other["securityContext"].keys() - spec["securityContext"].keys() == {"fsGroup"}  # it mounts no Secret
    assert spec["containers"][0]["securityContext"] == other["containers"][0]["securityContext"]
    assert spec["affinity"] == other["affinity"]
    assert {next(iter(each.keys() - {"name"})) for each in spec["volumes"]} == {"configMap", "emptyDir"}
    assert BY_NAME["ServiceAccount", OURS]["automountServiceAccountToken"] is False
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == (OURS, True)
    assert spec["containers"][0]["image"] == other["containers"][0]["image"]


def test_no_service_selects_the_pods_of_the_cron_job() -> None:
    labels = JOB["metadata"]["labels"]
    (selector,) = [each["spec"]["selector"] for each in read(BASE / "service.yaml")]
    assert not selector.items() <= labels.items()
    policy = BY_NAME["NetworkPolicy", OURS]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert "ingress" not in policy


# The Secrets


def test_the_secrets_are_empty_so_that_an_apply_leaves_what_is_in_them() -> None:
    secrets = [each for each in OBJECTS if each["kind"] == "Secret"]
    assert [each["metadata"]["name"] for each in secrets] == [OPTIONS["ca_secret_name"], OPTIONS["secret_name"]]
    assert all(each.keys() == {"apiVersion", "kind", "metadata", "type"} for each in secrets)


def test_the_webhook_mounts_what_is_served_and_never_a_ca() -> None:
    (volume,) = patched(COMPONENTS / "certificates")["spec"]["template"]["spec"]["volumes"]
    (base,) = [each for each in WEBHOOK["spec"]["template"]["spec"]["volumes"] if "secret" in each]
    assert volume["name"] == base["name"]
    assert volume["secret"]["secretName"] == OPTIONS["secret_name"]
    files = [f"/etc/slicewarden/tls/{each['path']}" for each in volume["secret"]["items"]]
    arguments = WEBHOOK["spec"]["template"]["spec"]["containers"][0]["args"]
    assert files == [arguments[arguments.index(option) + 1] for option in ("--tls-cert", "--tls-key")]
    assert all(each["key"] == each["path"] for each in volume["secret"]["items"])


def test_the_cron_job_reads_the_policy_of_the_webhook() -> None:
    spec, other = JOB["spec"], WEBHOOK["spec"]["template"]["spec"]
    for named in ("volumes", "volumeMounts"):
        ours, theirs = (
            [each for each in (pod if named == "volumes" else pod["containers"][0])[named] if each["name"] == "policy"]
            for pod in (spec, other)
        )
        assert ours == theirs
    arguments = other["containers"][0]["args"]
    assert OPTIONS["check_registration"] == arguments[arguments.index("--policy") + 1]


# cert-manager


def test_cert_manager_issues_what_the_webhook_is_asked_for() -> None:
    spec = BY_NAME["Certificate", "slicewarden"]["spec"]
    (volume,) = [each for each in WEBHOOK["spec"]["template"]["spec"]["volumes"] if "secret" in each]
    assert spec["secretName"] == volume["secret"]["secretName"]
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
    assert secrets.isdisjoint(
        {OPTIONS["ca_secret_name"], OPTIONS["secret_name"]}
    )  # going over, none is in the other's way


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
    named = (OPTIONS["ca_secret_name"], OPTIONS["secret_name"], OURS, "slicewarden-tls", "inject-ca-from")
    assert [each for each in named if each not in PAGE] == []
    commands = [line.split()[1:] for line in PAGE.splitlines() if line.startswith("slicewarden certs keep")]
    assert [read_command(*each)["service"] for each in commands] == ["slicewarden"] * 6
