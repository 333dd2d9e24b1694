"""Makes the fallback: ValidatingAdmissionPolicies with which the API server enforces part of a policy by itself."""
