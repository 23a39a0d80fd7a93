# The operator's image; router pods run `specfleet drain` from it too.
# Builds with `docker build .` and with `buildah bud --isolation chroot .`.

FROM debian:bookworm-slim AS build

# A base that brings Python (as an air-gapped site's own may) needs no package index.
RUN python3 -c 'import ensurepip, venv' 2>/dev/null \
    || { apt-get update && apt-get install --yes --no-install-recommends python3 python3-venv; }

ARG UV_VERSION=0.13.9
RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir --quiet uv==${UV_VERSION}

ENV UV_PROJECT_ENVIRONMENT=/opt/specfleet \
    UV_PYTHON=/usr/bin/python3 \
    UV_PYTHON_DOWNLOADS=never \
    UV_LINK_MODE=copy \
    UV_NO_CACHE=1 \
    UV_COMPILE_BYTECODE=1 \
    PYC_INVALIDATION_MODE=UNCHECKED_HASH

WORKDIR /src
# Dependencies first: a change of our own code does not install them again.
COPY pyproject.toml uv.lock ./
RUN /opt/uv/bin/uv sync --frozen --no-dev --no-install-project
COPY README.md LICENSE ./
COPY operator operator
RUN /opt/uv/bin/uv sync --frozen --no-dev --no-editable


FROM debian:bookworm-slim

RUN command -v python3 >/dev/null \
    || { apt-get update && apt-get install --yes --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*; }

COPY --from=build /opt/specfleet /opt/specfleet
COPY LICENSE /usr/share/doc/specfleet/LICENSE

# A name and a home, as the user has no entry in /etc/passwd (nor has the one that a cluster may choose instead).
ENV PATH=/opt/specfleet/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    USER=specfleet \
    LOGNAME=specfleet \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1

# Numeric, so that `runAsNonRoot` can be checked by the kubelet.
USER 65532:65532
WORKDIR /

ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="specfleet" \
      org.opencontainers.image.description="Kubernetes operator for speculative-decoding serving fleets" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/library/debian:bookworm-slim" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

ENTRYPOINT ["specfleet"]
CMD ["run"]
