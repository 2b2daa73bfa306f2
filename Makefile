# Shorthand for people who type make. run.py needs nothing but Python; `lock` needs uv on the PATH.
LOCK = uv pip compile --no-config --quiet --universal --generate-hashes --no-header

.PHONY: test lint demo serve bench lock clean

test lint demo serve bench:
	python3 run.py $@

lock:
	cd requirements && $(LOCK) --python-version 3.11 --output-file dev.txt dev.in
	cd requirements && $(LOCK) --python-version 3.11 --output-file django52.txt django52.in
	cd requirements && $(LOCK) --python-version 3.12 --output-file django60.txt django60.in
	cd requirements && $(LOCK) --python-version 3.12 --output-file django61.txt django61.in

clean:
	rm -rf .venv .venv-* .djqueue .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist build
