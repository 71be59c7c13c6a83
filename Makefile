.PHONY: protos
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

protos: ## regenerate the stubs beside the protos
	PATH="$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -I. --python_out=. --grpc_python_out=. --mypy_out=. --mypy_grpc_out=. protos/v1/*.proto
