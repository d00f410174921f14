# make demo    two gateways negotiate and carry traffic; needs no root and no configuration
# make test    installs what the tests need, then runs every check and test
# make bench   side-by-side measurements in namespaces; writes bench/records
# make lint    format, clippy, documentation, licences
# make rtl     synthesis, placement and routing of the FPGA cores (hours; needs rtl/.venv)
# make fuzz    fuzzes each target for a minute (needs nightly and cargo-fuzz)

.PHONY: demo test bench lint fuzz rtl build clean

build:
	cargo build --locked --release -p esplanade

demo: build
	@"$${CARGO_TARGET_DIR:-target}/release/esplanade" demo $(DEMO)

test:
	@tools/test.sh

lint:
	@tools/test.sh lint

bench: build
	@bench/run.sh

fuzz:
	@fuzz/run.sh

rtl:
	@rtl/syn/all.sh

clean:
	cargo clean
