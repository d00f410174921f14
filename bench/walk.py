"""Core cycles of both walks with an engine that does nothing; writes a record."""

from record import Bench

WHAT = "core cycles a packet without crypto: parse, policy, SA, sequence number, headers, batch, finish; one core"
# With many SAs a part of the time is page walks: the same with pages of 2 MiB (docs/cli.md).
HUGE_PAGES = "glibc.malloc.hugetlb=1"
LARGE = ("--cases", "64 bytes 100000")

if __name__ == "__main__":
    bench = Bench("esplanade-ipsec", "walk")
    results = {
        "cases": bench.cases(),
        "cases_with_huge_pages": bench.cases(LARGE, GLIBC_TUNABLES=HUGE_PAGES),
    }
    bench.write(WHAT, results, f", and with GLIBC_TUNABLES={HUGE_PAGES} and -- {' '.join(LARGE)}")
