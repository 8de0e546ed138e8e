# Three images from one file; none was built where this is developed, which has no Docker engine.
#
#     docker build --target vllm   -t lmi-backend:vllm .     NVIDIA's Triton with vLLM
#     docker build --target trtllm -t lmi-backend:trtllm .   NVIDIA's Triton with TensorRT-LLM
#     docker build --target cpu    -t lmi-backend:cpu .      no GPU: the README's commands
#
# Each serves the LMI folder mounted at /opt/ml/model, as LMI's own images do:
#
#     docker run --gpus all --shm-size=2g -v $PWD/my-model:/opt/ml/model:ro \
#         -p 127.0.0.1:8080:8080 lmi-backend:vllm
#     docker run --gpus all --shm-size=2g -v $PWD/my-model:/opt/ml/model:ro \
#         -p 127.0.0.1:8080:8080 lmi-backend:trtllm
#     docker run --shm-size=2g -v $PWD/my-model:/opt/ml/model:ro \
#         -p 127.0.0.1:8080:8080 lmi-backend:cpu
#
# `lmi-backend deploy --to compose` says the same, and takes more away from the container.
#
# --shm-size: requests go from tritonserver to its Python backend through /dev/shm, and data between
# the ranks of an engine too. Docker gives 64 MB. A prompt that no longer fits is an error, whose
# text names the memory of the Python backend before release 25.07 (CVE-2025-23320).
#
# `docker stop -t 60` lets running requests finish; serve waits 30 s for them (--drain-timeout).
#
# LMI_BACKEND_HOST lets the front end listen on every address inside the container, where 127.0.0.1
# cannot be published, whatever the arguments: SageMaker says `serve` and no more. -p says who may ask;
# LMI_API_KEY is the key that they need then. Triton's own ports (8000 to 8002) need no key, so they
# listen inside the container only. `--triton-host 0.0.0.0` opens them to whoever reaches them: inference,
# health, metadata, statistics, metrics. Restricted by a key that only serve knows: the model repository,
# shared memory, logging, trace.
#
# Triton's releases: the newest that NVIDIA's compatibility matrix has for each of the two images.
# SECURITY.md says which one a fleet needs at least.
ARG VLLM_TRITON=nvcr.io/nvidia/tritonserver:26.08-vllm-python-py3
ARG TRTLLM_TRITON=nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3

# The same steps as `make install model`, which CI runs in a fresh clone on Debian 12.
FROM python:3.11-slim-bookworm@sha256:528257d48c1da0dcecc2e725d1ae34498d60c965f1241e39cd6a85a8859bdf84 AS cpu
# Debian keeps one version of a package, the newest.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends curl g++ libgomp1 libnuma1 make openssh-client \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1001 lmi \
    && install -d -o lmi -g lmi /opt/lmi-backend /opt/ml/model /cache
USER 1001
WORKDIR /opt/lmi-backend
COPY --chown=lmi Makefile pyproject.toml README.md LICENSE ./
COPY --chown=lmi requirements requirements
COPY --chown=lmi tools tools
COPY --chown=lmi lmi_backend lmi_backend
COPY --chown=lmi examples examples
RUN make install model
ENV PATH=/opt/lmi-backend/.venv/bin:$PATH \
    PYTHON_EXECUTABLE=/opt/lmi-backend/.venv-engine/bin/python \
    LMI_BACKEND_HOST=0.0.0.0
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=10s --start-period=12537s \
    CMD ["lmi-backend", "health"]
ENTRYPOINT ["lmi-backend"]
CMD ["serve"]

# NVIDIA's images have tritonserver, Python, the engine and Open MPI. What this package needs has an
# environment of its own, so that the engine's keeps the releases that it came with; the worker,
# which runs in that one, needs msgspec. An image may be named by its digest:
#
#     docker build --target vllm --build-arg VLLM_TRITON=nvcr.io/nvidia/tritonserver@sha256:... .
FROM ${VLLM_TRITON} AS vllm
USER 0
WORKDIR /opt/lmi-backend
COPY pyproject.toml README.md LICENSE requirements/image.txt ./
COPY lmi_backend lmi_backend
ENV PATH=/opt/lmi-backend/.venv/bin:$PATH \
    PYTHON_EXECUTABLE=/usr/bin/python3
RUN python3 -m venv --without-pip .venv \
    && pip --python .venv/bin/python install --no-cache-dir --require-hashes -r image.txt \
    && pip --python .venv/bin/python install --no-cache-dir --no-deps . \
    && sed -n '/^msgspec==/,/[^\\]$/p' image.txt > worker.txt \
    && pip install --no-cache-dir --no-deps --require-hashes -r worker.txt \
    && lmi-backend install-backend /opt/tritonserver/backends \
    && useradd --create-home --uid 1001 lmi \
    && install -d -o lmi -g lmi /opt/ml/model /cache
ENV LMI_BACKEND_HOST=0.0.0.0
USER 1001
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=10s --start-period=12537s \
    CMD ["lmi-backend", "health"]
ENTRYPOINT ["lmi-backend"]
CMD ["serve"]

# SERVING_FEATURES says which engine the image holds, as in LMI's images.
FROM ${TRTLLM_TRITON} AS trtllm
USER 0
WORKDIR /opt/lmi-backend
COPY pyproject.toml README.md LICENSE requirements/image.txt ./
COPY lmi_backend lmi_backend
ENV PATH=/opt/lmi-backend/.venv/bin:$PATH \
    PYTHON_EXECUTABLE=/usr/bin/python3
RUN python3 -m venv --without-pip .venv \
    && pip --python .venv/bin/python install --no-cache-dir --require-hashes -r image.txt \
    && pip --python .venv/bin/python install --no-cache-dir --no-deps . \
    && sed -n '/^msgspec==/,/[^\\]$/p' image.txt > worker.txt \
    && pip install --no-cache-dir --no-deps --require-hashes -r worker.txt \
    && lmi-backend install-backend /opt/tritonserver/backends \
    && useradd --create-home --uid 1001 lmi \
    && install -d -o lmi -g lmi /opt/ml/model /cache
ENV SERVING_FEATURES=trtllm \
    LMI_BACKEND_HOST=0.0.0.0
USER 1001
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=10s --start-period=12537s \
    CMD ["lmi-backend", "health"]
ENTRYPOINT ["lmi-backend"]
CMD ["serve"]
