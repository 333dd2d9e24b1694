"""Certificates for the webhook: a private CA, the serving certificates, their renewal, and their Kubernetes objects."""

from certs.issue import Pair, ca_bundle, issue_ca, issue_serving, secret_manifest, service_names
from certs.life import Authorities, Changed, Store, Stored, Terms, Unsettled, authorities, keep, written

__all__ = [
    "Authorities",
    "Changed",
    "Pair",
    "Store",
    "Stored",
    "Terms",
    "Unsettled",
    "authorities",
    "ca_bundle",
    "issue_ca",
    "issue_serving",
    "keep",
    "secret_manifest",
    "service_names",
    "written",
]
