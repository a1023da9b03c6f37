# `just --list` shows these recipes. They use the environment .venv, which `just setup` makes.

export PATH := justfile_directory() / ".venv/bin" + ":" + env("PATH")

# Make the environment
setup:
    python3 -m venv .venv
    .venv/bin/pip install -q -e '.[dev]'

# Run the tests of every push: all tests, those of real reports over the covering sets
test *options:
    python -m pytest -n auto {{ options }}

# Run all tests over all real reports, with more examples
test-all *options:
    python -m pytest -n auto --all-sets {{ options }}

# Run the quick tests
test-fast *options:
    python -m pytest -n auto -m "not slow" {{ options }}

# Check format, style, types and floors
lint:
    ruff format --check .
    ruff check .
    mypy
    lint-imports

# Write the presets and their table
presets:
    python -m cfgs.generate

# Record what Paraver shows of the presets; PARAMEDIR names its paramedir
record:
    python -m cfgs.record

# Write what programs write of the documentation, and the site
docs:
    python docs/event_types.py
    python docs/commands.py
    python docs/schemas.py
    python docs/bottlenecks.py
    python docs/tables.py
    python docs/notebook.py
    python docs/quotes.py
    mkdocs build --strict

# Take the pictures of the documentation: needs wxParaver, Xvfb and more, which docs/photograph.py lists
pictures:
    python docs/photograph.py
    python docs/photograph_page.py
    python benchmarks/chart.py

# Do what must pass before a change lands, in a fresh environment
ci:
    .ci/run
