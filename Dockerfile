# Triton's vLLM image with lmi-backend on top. Not built where this project is developed: no Docker
# engine there. The image has its own tritonserver, Python and vLLM; nothing but msgspec is added.
ARG TRITON=nvcr.io/nvidia/tritonserver:26.03-vllm-python-py3
FROM ${TRITON}

COPY pyproject.toml README.md /opt/lmi-backend/
COPY lmi_backend /opt/lmi-backend/lmi_backend
RUN pip install --no-cache-dir "/opt/lmi-backend[client]" psutil \
    && lmi-backend install-backend /opt/tritonserver/backends

COPY model_repository /models
EXPOSE 8000 8001 8002
# One LMI folder, as in LMI's own containers; a fleet runs tritonserver itself.
CMD ["lmi-backend", "serve", "/opt/ml/model", "--host", "0.0.0.0"]
