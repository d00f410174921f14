# make demo    two gateways negotiate and carry traffic; needs no root and no configuration
# make test    installs what the tests need, then runs every check and test
# make soak    the same with all cases and parameter sets, and with the program as it is shipped (hours)
# make bench   side-by-side measurements in namespaces; writes bench/records
# make papers  the tables of five papers beside our records; writes docs/papers.md; needs Python alone; PAPERS=--live measures first
# make lint    format, clippy, documentation, licences
# make rtl     synthesis, placement and routing of the FPGA cores (hours; needs rtl/.venv)
# make build   the program alone; then make install and make uninstall, with PREFIX (/usr/local) and DESTDIR
# make fuzz    fuzzes each target for a minute (needs a C++ compiler)

.PHONY: demo test soak bench papers lint fuzz rtl build clean install uninstall

PREFIX ?= /usr/local
# The program reads /etc/esplanade if nothing else is said.
SYSCONFDIR ?= /etc
# What is installed: building is not root's job.
BINARY ?= $(or $(CARGO_TARGET_DIR),target)/release/esplanade
INSTALL ?= install

sbindir = $(PREFIX)/sbin
mandir = $(PREFIX)/share/man/man1
unitdir = $(PREFIX)/lib/systemd/system
sysusersdir = $(PREFIX)/lib/sysusers.d
conf = $(SYSCONFDIR)/esplanade/esplanade.conf
# The signed library of FPGA configurations (docs/ace.md).
acedir = $(PREFIX)/share/esplanade/ace
ace = crates/ace/library
commands = run check explain status up down rekey engine gpu reload guard demo completions man

build:
	cargo build --locked --release -p esplanade

demo:
	cargo build --locked --profile demo -p esplanade
	@"$${CARGO_TARGET_DIR:-target}/demo/esplanade" demo $(DEMO)

test:
	@tools/test.sh

soak:
	@SOAK=1 INTEROP_ALL=1 tools/test.sh soak

lint:
	@tools/test.sh lint

bench: build
	@bench/run.sh

papers:
	@[ -z "$(PAPERS)" ] || [ -x .venv/bin/python ] || tools/deps.sh --bench
	@python3 bench/papers.py $(PAPERS)

fuzz:
	@fuzz/run.sh

rtl:
	@rtl/syn/all.sh

clean:
	cargo clean

install:
	@test -x "$(BINARY)" || { echo "make install: there is no $(BINARY): run make build" >&2; exit 1; }
	$(INSTALL) -d "$(DESTDIR)$(sbindir)" "$(DESTDIR)$(mandir)" "$(DESTDIR)$(unitdir)" "$(DESTDIR)$(sysusersdir)" \
	  "$(DESTDIR)$(PREFIX)/share/bash-completion/completions" "$(DESTDIR)$(PREFIX)/share/zsh/site-functions" \
	  "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d" "$(DESTDIR)$(SYSCONFDIR)/esplanade" "$(DESTDIR)$(acedir)"
	$(INSTALL) -s -m 755 "$(BINARY)" "$(DESTDIR)$(sbindir)/esplanade"
	"$(BINARY)" man >"$(DESTDIR)$(mandir)/esplanade.1"
	for command in $(commands); do \
	  "$(BINARY)" man $$command >"$(DESTDIR)$(mandir)/esplanade-$$command.1" || exit 1; done
	"$(BINARY)" completions bash >"$(DESTDIR)$(PREFIX)/share/bash-completion/completions/esplanade"
	"$(BINARY)" completions zsh >"$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_esplanade"
	"$(BINARY)" completions fish >"$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/esplanade.fish"
	sed 's,@SBINDIR@,$(sbindir),' dist/esplanade.service >"$(DESTDIR)$(unitdir)/esplanade.service"
	$(INSTALL) -m 644 dist/esplanade.sysusers "$(DESTDIR)$(sysusersdir)/esplanade.conf"
	$(INSTALL) -m 644 $(ace)/*.ace $(ace)/public.key "$(DESTDIR)$(acedir)"
	$(INSTALL) -m 644 $(ace)/manifest "$(DESTDIR)$(acedir)"
	for file in "$(DESTDIR)$(acedir)"/*.ace; do test -e "$(ace)/$${file##*/}" || rm -f "$$file"; done

# The configuration in /etc/esplanade is the administrator's and stays. What a stopped gateway holds back is let out: no
# tool is left for that later. OPEN=no keeps it held.
uninstall:
	@if [ -z "$(DESTDIR)" ] && [ "$(OPEN)" != no ] && [ -x "$(sbindir)/esplanade" ] && [ -e "$(conf)" ]; then \
	  "$(sbindir)/esplanade" guard clear --config "$(conf)" || { echo "make uninstall: the gateway still holds traffic \
	back: stop it and run \`esplanade guard clear\`, or say OPEN=no" >&2; exit 1; }; fi
	rm -f "$(DESTDIR)$(sbindir)/esplanade" "$(DESTDIR)$(mandir)/esplanade.1" \
	  $(foreach command,$(commands),"$(DESTDIR)$(mandir)/esplanade-$(command).1") \
	  "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/esplanade" \
	  "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_esplanade" \
	  "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/esplanade.fish" \
	  "$(DESTDIR)$(unitdir)/esplanade.service" "$(DESTDIR)$(sysusersdir)/esplanade.conf" \
	  "$(DESTDIR)$(acedir)"/*.ace $(foreach file,manifest public.key,"$(DESTDIR)$(acedir)/$(file)")
	rmdir "$(DESTDIR)$(acedir)" "$(DESTDIR)$(PREFIX)/share/esplanade" 2>/dev/null || true
