// Drives esp_sections at the speed of compiled code, as the script on the standard input says:
//   c ADDRESS DATA        writes the configuration (hexadecimal); what was queued goes on meanwhile
//   b PORT DATA KEEP LAST queues a beat for a port
//   p PORT PERCENT        another share of back-pressure for one port; 100: it takes nothing
//   r CYCLES              runs that long
//   x CYCLES              the same, then resets; what was queued is forgotten
//   g PACKETS CYCLES      runs until so many packets have left or been dropped, at most so long, and a little on
// Arguments: share of idle cycles and of back-pressure in percent, seed, time of a SAD clock cycle in percent of a cycle.
// Prints: i PORT FIRST LAST (a packet that went in, cycles of its first and last beat), o PORT FIRST LAST BYTES
// (one that came out), d FRAME POLICY SA UNIT EXIT (the counters of drops), stuck.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <type_traits>
#include <vector>

#include "Vesp_sections.h"
#include "verilated.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif

static void put(uint32_t *words, unsigned at, unsigned width, uint32_t value) {
  for (unsigned i = 0; i < width; i++) {
    uint32_t bit = 1u << ((at + i) & 31);
    if (value >> i & 1) words[(at + i) / 32] |= bit;
    else words[(at + i) / 32] &= ~bit;
  }
}
template <typename T> static void set(T &port, unsigned at, unsigned width, uint32_t value) {
  if constexpr (std::is_integral_v<T>) {
    T mask = T(((uint64_t(1) << width) - 1) << at);
    port = T((port & ~mask) | (T(uint64_t(value) << at) & mask));
  } else {
    put(port.data(), at, width, value);
  }
}
template <typename T> static uint32_t get(const T &port, unsigned at, unsigned width) {
  if constexpr (std::is_integral_v<T>) {
    return uint32_t(uint64_t(port) >> at & ((uint64_t(1) << width) - 1));
  } else {
    uint64_t two = port.data()[at / 32];
    if ((at & 31) + width > 32) two |= uint64_t(port.data()[at / 32 + 1]) << 32;
    return uint32_t(two >> (at & 31) & ((uint64_t(1) << width) - 1));
  }
}

struct Beat {
  uint32_t data[4];
  uint16_t keep;
  bool last;
};

struct Pauses {
  unsigned share, left = 0;
  bool now = false;
  uint64_t state;
  Pauses(unsigned share, uint64_t seed) : share(share), state(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint32_t random() {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return uint32_t(state >> 32);
  }
  bool next() {
    if (left == 0) {
      now = random() % 100 < share;
      left = random() % 4 == 0 ? 5 : 1 + random() % 2;
    }
    left--;
    return now;
  }
};

static VerilatedContext context;
static Vesp_sections *top;
static uint64_t cycle, now_ps, next_sad_ps, sad_half_ps, first_out[16], first_in[16];
static std::vector<std::deque<Beat>> queues(PORTS);
static std::vector<bool> offering(PORTS), inside(PORTS), starting(PORTS, true);
static std::vector<std::string> rest(PORTS);
static std::vector<Pauses> idle, pressure;
static uint64_t left_count;
static bool flowing;  // a beat went in since the reset

// Half a cycle of the core is 5000 ps; the SAD's edges fall in between.
static void advance(uint64_t until) {
  while (next_sad_ps <= until) {
    context.time(next_sad_ps);
    top->clk_sad_i = !top->clk_sad_i;
    top->eval();
    next_sad_ps += sad_half_ps;
  }
  now_ps = until;
  context.time(until);
}
static void edge() {
  top->eval();
  advance(now_ps + 5000);
  top->clk_i = 1;
  top->eval();
  advance(now_ps + 5000);
  top->clk_i = 0;
  top->eval();
  cycle++;
}

static uint64_t dropped() {
  return uint64_t(top->dropped_frame_o) + top->dropped_policy_o + top->dropped_sa_o + top->dropped_unit_o + top->dropped_exit_o;
}

static void step() {
  bool ready[PORTS];
  for (unsigned p = 0; p < PORTS; p++) {
    offering[p] = !queues[p].empty() && (offering[p] || !idle[p].next());
    ready[p] = !pressure[p].next();
    set(top->s_axis_tvalid_i, p, 1, offering[p]);
    set(top->m_axis_tready_i, p, 1, ready[p]);
    if (offering[p]) {
      const Beat &beat = queues[p].front();
      for (unsigned w = 0; w < 4; w++) set(top->s_axis_tdata_i, 128 * p + 32 * w, 32, beat.data[w]);
      set(top->s_axis_tkeep_i, 16 * p, 16, beat.keep);
      set(top->s_axis_tlast_i, p, 1, beat.last);
    }
  }
  top->eval();
  for (unsigned p = 0; p < PORTS; p++) {
    if (offering[p] && get(top->s_axis_tready_o, p, 1)) {
      if (starting[p]) first_in[p] = cycle;
      flowing = true;
      starting[p] = queues[p].front().last;
      if (starting[p]) printf("i %u %llu %llu\n", p, (unsigned long long)first_in[p], (unsigned long long)cycle);
      queues[p].pop_front();
      offering[p] = false;
    }
    if (ready[p] && get(top->m_axis_tvalid_o, p, 1)) {
      if (!inside[p]) first_out[p] = cycle;
      uint32_t keep = get(top->m_axis_tkeep_o, 16 * p, 16);
      bool last = get(top->m_axis_tlast_o, p, 1);
      unsigned bytes = __builtin_popcount(keep);
      if (keep != (1u << bytes) - 1 || (!last && bytes != 16) || bytes == 0) printf("bad keep %x\n", keep);
      for (unsigned i = 0; i < bytes; i++) {
        char text[3];
        snprintf(text, sizeof text, "%02x", get(top->m_axis_tdata_o, 128 * p + 8 * i, 8));
        rest[p] += text;
      }
      inside[p] = !last;
      if (last) {
        printf("o %u %llu %llu %s\n", p, (unsigned long long)first_out[p], (unsigned long long)cycle, rest[p].c_str());
        rest[p].clear();
        left_count++;
      }
    }
  }
  edge();
}

static void reset() {
  top->rst_ni = top->rst_sad_ni = 0;
  for (unsigned p = 0; p < PORTS; p++) {
    queues[p].clear();
    rest[p].clear();
    offering[p] = inside[p] = false;
    starting[p] = true;
  }
  set(top->s_axis_tvalid_i, 0, PORTS, 0);
  set(top->m_axis_tready_i, 0, PORTS, 0);
  top->cfg_valid_i = 0;
  for (int i = 0; i < 8; i++) edge();
  top->rst_ni = top->rst_sad_ni = 1;
  left_count = 0;
  flowing = false;
}

int main(int argc, char **argv) {
  auto argument = [&](int i, unsigned standard) { return i < argc ? unsigned(atoi(argv[i])) : standard; };
  unsigned seed = argument(3, 1);
  for (unsigned p = 0; p < PORTS; p++) {
    idle.emplace_back(argument(1, 0), seed * 100 + p);
    pressure.emplace_back(argument(2, 0), seed * 100 + 50 + p);
  }
  sad_half_ps = 50 * argument(4, 50);
  next_sad_ps = sad_half_ps + 1234;
  context.randReset(2);
  context.randSeed(int(seed));
  top = new Vesp_sections(&context);
  top->clk_i = top->clk_sad_i = 0;
  reset();
  char line[256];
  while (fgets(line, sizeof line, stdin)) {
    unsigned a, b, c;
    unsigned long long n, most;
    char data[40];
    if (sscanf(line, "c %x %x", &a, &b) == 2) {
      top->cfg_valid_i = 1, top->cfg_addr_i = a, top->cfg_data_i = b;
      for (int i = 0; i < 100000; i++) {
        top->eval();
        bool taken = top->cfg_ready_o;
        step();
        if (taken) break;
      }
      top->cfg_valid_i = 0;
    } else if (sscanf(line, "b %u %32s %x %u", &a, data, &b, &c) == 4) {
      Beat beat{{0, 0, 0, 0}, uint16_t(b), c != 0};
      for (unsigned i = 0; i < 16; i++) {
        unsigned byte = 0;
        sscanf(data + 2 * i, "%2x", &byte);
        beat.data[i / 4] |= byte << 8 * (i & 3);
      }
      queues[a].push_back(beat);
    } else if (sscanf(line, "p %u %u", &a, &b) == 2) {
      pressure[a].share = b;
    } else if (sscanf(line, "r %llu", &n) == 1) {
      while (n--) step();
    } else if (sscanf(line, "x %llu", &n) == 1) {
      while (n--) step();
      reset();
    } else if (sscanf(line, "g %llu %llu", &n, &most) == 2) {
      // The SAD has its clock's time to take what was written before the first packet comes.
      if (!flowing) for (int i = 0; i < 60; i++) edge();
      uint64_t end = cycle + most;
      while (left_count + dropped() < n && cycle < end) step();
      if (left_count + dropped() < n) printf("stuck\n");
      for (int i = 0; i < 100; i++) step();
      printf("d %u %u %u %u %u\n", top->dropped_frame_o, top->dropped_policy_o, top->dropped_sa_o, top->dropped_unit_o, top->dropped_exit_o);
    }
  }
  top->final();
#if VM_COVERAGE
  context.coveragep()->write(getenv("RTL_COVERAGE_FILE"));
#endif
  delete top;
  return 0;
}
