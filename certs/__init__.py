"""Certificates for the webhook: a private CA, what it signs, and the forms Kubernetes wants them in."""

from certs.issue import Pair, ca_bundle, issue_ca, issue_serving, secret_manifest, service_names

__all__ = ["Pair", "ca_bundle", "issue_ca", "issue_serving", "secret_manifest", "service_names"]
