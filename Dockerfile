# The official image, by the digest that Docker's own record gives: docker-library/repo-info,
# repos/python/remote/3.13-slim-trixie.md at 2986dca3a80c (Python 3.13.14). Renew it with each patch release:
#   docker buildx imagetools inspect python:3.13-slim-trixie
ARG BASE=docker.io/library/python:3.13-slim-trixie@sha256:9662417aace5ae7b8e2609cce472b72a8958e134ba372808abe9cc1a0c0125e6

FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY manifests/image manifests/image
COPY policies policies
COPY certs certs
COPY webhook webhook
RUN manifests/image/build.sh /opt/slicewarden

FROM ${BASE}
# Nothing is installed here any more.
RUN python -m pip uninstall --yes --quiet --root-user-action ignore pip
ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="slicewarden" \
      org.opencontainers.image.description="Admission control for shared GPUs on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/slicewarden /opt/slicewarden
ENV PATH=/opt/slicewarden/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["slicewarden"]
