# genie-dg with its benchmark and reports, as a user without rights. The default command is the demo:
#
#   docker build -t genie-dg .
#   docker run --rm -v "$PWD/runs:/home/genie/runs" genie-dg
#   docker run --rm genie-dg list optimizers
#
# TORCH_OPTIONS goes to pip where torch is installed and chooses its wheel. Empty, pip's configured index
# decides. docs/installation.md says how to ask for the wheel without CUDA or for one CUDA version.
ARG PYTHON=3.12
FROM python:${PYTHON}-slim

# GENIE builds its CPU kernel with the system's C compiler at the first step; the slim image has none.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/genie-dg
ARG TORCH_OPTIONS=""
COPY constraints.txt ./
# torch first and alone: the largest layer stays when the source changes.
RUN pip install --no-cache-dir ${TORCH_OPTIONS} torch torchvision -c constraints.txt

ARG EXTRAS="bench,timm,export"
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir ".[${EXTRAS}]" -c constraints.txt

RUN useradd --create-home --uid 1000 genie && install -d -o genie -g genie /home/genie/runs
USER genie
WORKDIR /home/genie
ENTRYPOINT ["genie-dg"]
CMD ["demo"]
