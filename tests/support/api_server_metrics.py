"""Reads the metrics of an API server about webhooks."""

METRICS = {
    "apiserver_admission_webhook_admission_duration_seconds": ("name", "type", "operation", "rejected"),
    "apiserver_admission_webhook_rejection_count": ("name", "type", "operation", "error_type", "rejection_code"),
    "apiserver_admission_webhook_fail_open_count": ("name", "type"),
    "apiserver_admission_webhook_request_total": ("name", "type", "operation", "code", "rejected"),
    "apiserver_admission_match_condition_evaluation_errors_total": ("name", "kind", "type", "operation"),
}
"""The API server's, with their labels (kubernetes staging/src/k8s.io/apiserver/pkg/admission/metrics/metrics.go)."""
