# An image of the project for NVIDIA GPUs of x86-64, driver 580 or newer:
#
#     docker build --tag registry.example.com/albert:1 .
#     docker run --gpus all --ipc host --volume "$PWD:/data" registry.example.com/albert:1 \
#         deepspeed --quiet --module pipeline.pretrain --model albert-base --data /data/shards/train \
#         --deepspeed_config ds_configs/base.json --output /data/runs/base
#
# torch brings the libraries of CUDA, so the base image has none. --ipc host gives NCCL enough /dev/shm.
FROM nvidia/cuda:13.0.2-base-ubuntu24.04 AS environment
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-venv \
    && python3 -m venv /opt/environment
ENV PATH=/opt/environment/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1

# The locked packages, as `make environment` installs them. Packages without a wheel are built with the locked
# setuptools, so it comes first.
COPY requirements.lock requirements-cuda.lock /tmp/
RUN sed -n '/^setuptools==/,/[^\]$/p' /tmp/requirements.lock >/tmp/setuptools.lock \
    && for lock in setuptools.lock requirements.lock requirements-cuda.lock; do \
        pip install --require-hashes --no-deps --no-build-isolation --requirement "/tmp/$lock"; \
    done \
    && pip check

FROM nvidia/cuda:13.0.2-base-ubuntu24.04
# Triton compiles with gcc against Python.h while a model runs. Nothing else here compiles.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev python3-dev \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home albert
COPY --from=environment /opt/environment /opt/environment
COPY . /workspace
ENV PATH=/opt/environment/bin:$PATH PYTHONDONTWRITEBYTECODE=1
WORKDIR /workspace
USER 10001
CMD ["python", "-m", "pipeline.plan", "--help"]
