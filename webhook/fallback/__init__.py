"""Makes the fallback: ValidatingAdmissionPolicies by which the API server itself holds what it can of a policy."""
