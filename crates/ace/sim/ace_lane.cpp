// The Verilated lanes behind C functions, a call for each clock cycle.
//
// The structs are those of src/simulated/pins.rs.
#include <cstdint>
#include <memory>

#include "Vace_lane_mars.h"
#include "Vace_lane_rc6.h"
#include "Vace_lane_rijndael.h"
#include "Vace_lane_serpent.h"
#include "Vace_lane_twofish.h"
#include "verilated.h"

namespace {

struct Inputs {
  uint32_t data;
  uint8_t valid;
  uint8_t last;
  uint8_t ready;
  uint8_t reset;
  uint8_t wipe;
};

struct Outputs {
  uint32_t data;
  uint8_t valid;
  uint8_t last;
  uint8_t ready;
  uint8_t busy;
};

struct Lane {
  virtual ~Lane() = default;
  virtual void cycle(const Inputs &in, Outputs &out) = 0;
};

template <class Model>
struct LaneOf : Lane {
  VerilatedContext context;
  std::unique_ptr<Model> top;

  LaneOf() {
    // What reset does not set has some value, as on a chip.
    context.randReset(2);
    context.randSeed(1);
    top = std::make_unique<Model>(&context, "ace_lane");
  }

  ~LaneOf() override { top->final(); }

  void cycle(const Inputs &in, Outputs &out) override {
    top->clk_i = 0;
    top->rst_ni = !in.reset;
    top->wipe_i = in.wipe;
    top->valid_i = in.valid;
    top->data_i = in.data;
    top->last_i = in.last;
    top->ready_i = in.ready;
    top->eval();
    out.ready = top->ready_o;
    out.valid = top->valid_o;
    out.data = top->data_o;
    out.last = top->last_o;
    out.busy = top->busy_o;
    top->clk_i = 1;
    top->eval();
  }
};

}  // namespace

// The numbers are those of the parameter Algorithm.
extern "C" void *esplanade_lane_new(uint8_t algorithm) {
  switch (algorithm) {
    case 0:
      return static_cast<Lane *>(new LaneOf<Vace_lane_rijndael>);
    case 1:
      return static_cast<Lane *>(new LaneOf<Vace_lane_serpent>);
    case 2:
      return static_cast<Lane *>(new LaneOf<Vace_lane_twofish>);
    case 3:
      return static_cast<Lane *>(new LaneOf<Vace_lane_rc6>);
    case 4:
      return static_cast<Lane *>(new LaneOf<Vace_lane_mars>);
    default:
      return nullptr;
  }
}

extern "C" void esplanade_lane_delete(void *lane) { delete static_cast<Lane *>(lane); }

extern "C" void esplanade_lane_cycle(void *lane, const Inputs *in, Outputs *out) {
  static_cast<Lane *>(lane)->cycle(*in, *out);
}
