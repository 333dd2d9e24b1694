"""The fields of deploying objects that are followed, or change no deployed object. A later release may add others.

Sources: kustomize-controller api/v1, helm-controller api/v2 and source-controller api/v1 of Flux; Argo CD
pkg/apis/application/v1alpha1; pkg/state/state.go of helmfile; and api/types/helmchartargs.go of kustomize.
"""

from collections.abc import Mapping
from typing import Any

Known = Mapping[str, Any]
"""Known fields; one with further fields has these, and None knows everything below a field."""


def _all(names: str) -> Known:
    return dict.fromkeys(names.split())


FLUX: Known = {
    **_all("path sourceRef targetNamespace patches patchesStrategicMerge patchesJson6902 images components namePrefix"),
    **_all(
        "nameSuffix interval retryInterval timeout prune wait force suspend dependsOn healthChecks healthCheckExprs"
    ),
    **_all("serviceAccountName decryption kubeConfig deletionPolicy ignoreMissingComponents buildMetadata validation"),
    "commonMetadata": _all("labels"),
    "postBuild": _all("substitute substituteFrom substituteStrategy"),
}
"""Fields of the spec of a Kustomization of Flux."""

GIT: Known = _all("url ref interval timeout secretRef serviceAccountName provider verify proxySecretRef ignore suspend")
"""Fields of the spec of a GitRepository of Flux."""

CHART: Known = _all(
    "chart version sourceRef interval reconcileStrategy valuesFiles ignoreMissingValuesFiles verify suspend"
)
"""Fields of the spec of a HelmChart, also in a HelmRelease."""

RELEASE: Known = {
    **_all(
        "chartRef values valuesFrom releaseName targetNamespace interval timeout suspend dependsOn storageNamespace"
    ),
    **_all("kubeConfig maxHistory serviceAccountName persistentClient driftDetection install test rollback uninstall"),
    **_all("healthCheckExprs waitStrategy"),
    "chart": {"metadata": None, "spec": CHART},
    "upgrade": _all(
        "cleanupOnFail crds disableHooks disableOpenAPIValidation disableSchemaValidation disableTakeOwnership "
        "disableWait disableWaitForJobs force remediation strategy timeout"
    ),
}
"""Fields of the spec of a HelmRelease."""

SOURCE: Known = {
    **_all("repoURL targetRevision path chart ref name"),
    "helm": _all(
        "valueFiles values valuesObject parameters releaseName ignoreMissingValueFiles skipCrds passCredentials "
        "skipSchemaValidation skipTests version"
    ),
    "kustomize": _all(
        "namePrefix nameSuffix patches components images namespace version replicas labelWithoutSelector "
        "labelIncludeTemplates forceCommonLabels forceCommonAnnotations commonAnnotationsEnvsubst "
        "ignoreMissingComponents"
    ),
    "directory": _all("recurse exclude include"),
}
"""Fields of a source of an Application."""

APPLICATION: Known = {
    **_all("destination project ignoreDifferences info revisionHistoryLimit"),
    "source": SOURCE,
    "sources": SOURCE,
    "syncPolicy": _all("automated syncOptions retry"),
}
"""Fields of the spec of an Application."""

OPERATION: Known = {
    **_all("initiatedBy info retry"),
    "sync": _all("revision revisions prune dryRun syncStrategy resources syncOptions autoHealAttemptsCount"),
}
"""Fields of the operation of an Application. Its other fields make Argo CD sync other objects than the spec says."""

SET: Known = {
    **_all("goTemplate goTemplateOptions syncPolicy strategy preservedFields ignoreApplicationDifferences"),
    **_all("applyNestedSelectors"),
    "template": {"metadata": None, "spec": APPLICATION},
    "generators": {
        "selector": None,
        "list": _all("elements"),
        "git": _all("repoURL revision directories files values requeueAfterSeconds pathParamPrefix"),
    },
}
"""Fields of the spec of an ApplicationSet."""

_WAYS = _all(
    "wait waitForJobs timeout atomic cleanupOnFail force createNamespace verify kubeContext recreatePods devel "
    "skipDeps cascade keyring disableValidation disableOpenAPIValidation insecureSkipTLSVerify plainHttp takeOwnership "
    "tillerless"
)
"""Fields by which Helmfile installs a chart, and which change nothing in it."""

HELMFILE: Known = {
    **_all(
        "repositories releases environments values templates commonLabels lockFilePath missingFileHandler helmBinary"
    ),
    "helmDefaults": {**_WAYS, "historyMax": None},
}
"""Fields of a helmfile."""

HELMFILE_RELEASE: Known = {
    **_all("name namespace chart version values labels condition installed needs historyMax missingFileHandler"),
    **_all("disableValidationOnInstall skipSchemaValidation deleteWait deleteTimeout"),
    **_WAYS,
}
"""Fields of a release in a helmfile."""

ENTRY: Known = _all(
    "name repo version releaseName namespace valuesFile additionalValuesFiles valuesInline valuesMerge includeCRDs "
    "skipHooks skipTests devel debug"
)
"""Fields of a chart in a kustomization."""

GLOBALS: Known = _all("chartHome configHome")
"""Fields of a kustomization for all of its charts."""

_SELECTOR = _all("group version kind name namespace annotationSelector labelSelector")

_PATCH: Known = {**_all("path patch"), "target": _SELECTOR, "options": _all("allowNameChange allowKindChange")}

_OPTIONS = _all("labels annotations disableNameSuffixHash immutable")

_GENERATOR: Known = {**_all("namespace name behavior literals files envs env type"), "options": _OPTIONS}

_COPIED = _all("delimiter index encoding create")

KUSTOMIZATION: Known = {
    **_all("apiVersion kind openapi namePrefix nameSuffix namespace commonLabels commonAnnotations"),
    **_all("patchesStrategicMerge resources components crds bases configurations generators transformers validators"),
    **_all("buildMetadata"),
    "metadata": _all("name namespace labels annotations"),
    "labels": {
        **_all("pairs includeSelectors includeTemplates"),
        "fields": _all("group version kind path create"),
    },
    "patches": _PATCH,
    "patchesJson6902": _PATCH,
    **dict.fromkeys(("images", "imageTags"), _all("name newName tagSuffix newTag digest")),
    "replacements": {
        **_all("path sourceValue"),
        "source": {**_all("group version kind name namespace fieldPath"), "options": _COPIED},
        "targets": {"select": _SELECTOR, "reject": _SELECTOR, "fieldPaths": None, "options": _COPIED},
    },
    "replicas": _all("name count"),
    "vars": {
        "name": None,
        "objref": _all("apiVersion group version kind name namespace"),
        "fieldref": _all("fieldPath"),
    },
    "sortOptions": {"order": None, "legacySortOptions": _all("orderFirst orderLast")},
    "configMapGenerator": _GENERATOR,
    "secretGenerator": _GENERATOR,
    "generatorOptions": _OPTIONS,
    "helmGlobals": GLOBALS,
    "helmCharts": {**ENTRY, **_all("apiVersions kubeVersion nameTemplate")},
    "helmChartInflationGenerator": _all(
        "chartName chartVersion chartRepoUrl chartHome chartRepoName helmBin helmHome values valuesLocal valuesMerge "
        "releaseName releaseNamespace extraArgs"
    ),
}
"""All fields of a kustomization (kustomize api/types/kustomization.go)."""
