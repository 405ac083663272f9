# One image for every service of docker-compose.yml: the package with all it needs, and the Java that Spark runs on.
FROM python:3.12-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN python -m venv /opt/icefleet \
 && /opt/icefleet/bin/pip install --no-cache-dir -c constraints.txt setuptools wheel
# The dependencies first: they change less often than the code.
RUN mkdir producer tasks workers \
 && touch icefleet_main.py \
 && /opt/icefleet/bin/pip install --no-cache-dir --no-build-isolation -c constraints.txt ".[worker,flower,demo]" \
 && /opt/icefleet/bin/pip uninstall --yes icefleet
COPY icefleet_main.py icefleet_main.py
COPY producer producer
COPY tasks tasks
COPY workers workers
RUN rm -rf build ./*.egg-info \
 && /opt/icefleet/bin/pip install --no-cache-dir --no-build-isolation --no-deps .

FROM python:3.12-slim-bookworm
RUN apt-get update \
 && mkdir -p /usr/share/man/man1 \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/icefleet /opt/icefleet
# A volume takes its owner from the directory it is first mounted on.
RUN useradd --system --create-home --uid 10001 icefleet \
 && install --directory --owner icefleet --group icefleet /warehouse /catalog /state /scratch
ENV PATH=/opt/icefleet/bin:$PATH PYTHONUNBUFFERED=1
USER icefleet
WORKDIR /home/icefleet
CMD ["icefleet", "worker"]
