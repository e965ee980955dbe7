# One image for both ends of the Dataflow Flex Template: it launches the job and is the workers' SDK container,
# so that they cannot differ in a version. templates/README.md has the commands.
ARG BEAM_VERSION=2.77.0

# Beam's own worker image: Python, the SDK of exactly this version, and the entry point of workers.
FROM apache/beam_python3.11_sdk:${BEAM_VERSION}

# An argument from before FROM is known after it only if it is named again.
ARG BEAM_VERSION

# What Dataflow starts on the launcher machine. Pin a dated tag or a digest where builds must be repeatable.
COPY --from=gcr.io/dataflow-templates-base/python311-template-launcher-base:latest \
    /opt/google/dataflow/python_template_launcher /opt/google/dataflow/python_template_launcher

COPY setup.py pyproject.toml README.md /template/
COPY beam_dp /template/beam_dp
COPY pipelines /template/pipelines

# Installed, not only copied: workers import the package by name. The ranges are setup.py's; Beam is held at the
# version of the base image, whose entry point belongs to it.
RUN pip install --no-cache-dir "/template[gcp]" "apache-beam==${BEAM_VERSION}" && pip check

# The launcher runs this file with the template's parameters as --name=value. No requirements or setup file is
# named for it, since everything is installed already.
ENV FLEX_TEMPLATE_PYTHON_PY_FILE=/template/pipelines/partition_selection.py

# No ENTRYPOINT: that of the base image starts a worker, and Dataflow names the launcher by its path.
