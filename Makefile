# What a user calls. Every target sees to its tools first, see ci/setup.sh.

export PATH := $(HOME)/.cargo/bin:$(PATH)
FILE ?=
CAPTURE := build/demo.pcap
CORE := build/verilog/verbena_core.v
# What `make route` routes, and the seeds of the placement, a run each.
BLOCKS ?= icrc icrc_check rotate shifter
SEEDS ?= 1 2 3

.PHONY: help demo test test-long bench synth route docs verilog lint setup clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo [FILE=path]  send a file through two simulated cards and a 100 Gb/s link'
	@echo 'make test              all tests, but for those that take too long for each time'
	@echo 'make test-long         those: eight million writes, up to half an hour'
	@echo 'make bench             goodput and latency against the limits of wire and PCIe'
	@echo 'make synth             map the core for UltraScale+ with Yosys: size, path lengths, checks'
	@echo 'make route             route some blocks alone for an Artix-7 (as root, or with NEXTPNR)'
	@echo 'make verilog           write the generated Verilog to build/verilog'
	@echo 'make docs              write the generated pages of docs/ and verbena_ndk.h anew'
	@echo 'make lint              formatting, lints, generated docs'
	@echo 'make setup             install what is missing'
	@echo 'make clean             remove what was built'

setup:
	@ci/setup.sh

demo: setup
	@mkdir -p build
	cargo run --release -p verbena-sim --bin verbena -- send $(if $(FILE),"$(FILE)") --pcap $(CAPTURE)
	@echo
	@echo 'The frames, decoded:  tshark -r $(CAPTURE) -c 8'
	@echo 'One of them in full:  tshark -r $(CAPTURE) -V -c 1'

bench: setup
	cargo run --release -p verbena-sim --bin verbena -- bench write --qps 1,16,256 --svg build/bench

test: setup
	ci/test.sh
	ci/docs.sh

test-long: setup
	cargo test --release -p verbena-tests --test ndk_write -- --ignored --nocapture

verilog: setup
	@mkdir -p $(dir $(CORE))
	cargo run --quiet -p verbena-hw --example verilog > $(CORE).new
	@mv $(CORE).new $(CORE)
	@echo '$(CORE): module verbena_core'

synth:
	@ci/setup.sh synth
	@$(MAKE) --no-print-directory verilog
	nice .venv/bin/python scripts/synth.py $(CORE) --uram --json-out build/synth/report.json

route:
	@ci/setup.sh synth
	@ci/setup_route.sh
	@mkdir -p build/verilog
	@set -e; for block in $(BLOCKS); do \
		cargo run --quiet -p verbena-hw --example block $$block > build/verilog/$$block.v.new; \
		mv build/verilog/$$block.v.new build/verilog/$$block.v; \
	done
	nice .venv/bin/python scripts/route.py $(BLOCKS:%=build/verilog/%.v) --seed $(SEEDS) --json-out build/route/report.json

docs: setup
	cargo run --quiet -p verbena-docs

lint: setup
	ci/format.sh
	ci/lint.sh
	ci/docs.sh

clean:
	cargo clean
	rm -rf build
