"""The layers of webhook/, which tests keep and CONTRIBUTING.md shows."""

LAYERS = (
    ("catalog", "text"),
    ("model",),
    ("allowance",),
    ("documents",),
    ("api", "cgroups", "telemetry"),
    ("http", "policy", "repository"),
    ("facts",),
    ("cel", "kustomize", "review"),
    ("cluster", "deviceplugin", "gpu", "rendering"),
    ("memory",),
    ("rules",),
    ("engine",),
    ("fallback", "usage"),
    ("agent", "doctor", "policytests", "proving", "scan", "serving"),
    ("starter",),
    ("placing",),
    ("lints", "reports"),
    ("controller", "ui"),
    ("cli",),
    ("__main__",),
)
"""The packages of webhook/, lowest layer first. A module imports from its own package and from layers below."""
