# Installs the harness and judges a first solution; no GPU is needed:
#
#   docker build -t kernel-harness .
#   docker run --rm kernel-harness                 # the README's first evaluate
#   docker run --rm kernel-harness pytest          # the README's tests
#
# With a GPU, NVIDIA's container toolkit on the host, and nvcc in the image:
#
#   docker build --build-arg BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04 --build-arg EXTRAS=test,gpu -t kernel-harness .
#   docker run --rm --gpus all kernel-harness python -m harness doctor
#
# Records and builds are in /home/judge/.cache; add `-v kernel-harness:/home/judge/.cache` to keep them.
ARG BASE=python:3.12-slim
FROM ${BASE}
ARG EXTRAS=test

# The emulator builds CUDA with g++. NVIDIA's images have no Python; the default one has its own.
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ \
    && { command -v python3 || apt-get install -y --no-install-recommends python3 python3-dev python3-venv; } \
    && rm -rf /var/lib/apt/lists/*

# Candidates run as this user. The harness confines them further (docs/security.md).
RUN useradd --create-home judge && install -d -o judge -g judge /home/judge/.cache /home/judge/kernel-harness
USER judge
ENV PATH=/home/judge/venv/bin:$PATH
WORKDIR /home/judge/kernel-harness
COPY --chown=judge:judge . .
RUN python3 -m venv /home/judge/venv && pip install --no-cache-dir -c constraints.txt -e ".[${EXTRAS}]"

CMD ["python", "-m", "harness", "evaluate", "group_norm/plain"]
