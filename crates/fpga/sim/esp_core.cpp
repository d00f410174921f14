// The Verilated core behind C functions, a call for each clock cycle.
//
// The structs are those of src/simulated/pins.rs.
#include <cstdint>
#include <memory>

#include "Vesp_core.h"
#include "verilated.h"

namespace {

struct Beat {
  uint32_t data[4];
  uint32_t user;
  uint16_t keep;
  uint8_t valid;
  uint8_t last;
};

struct Inputs {
  Beat streams[2];
  uint32_t write_address;
  uint32_t write_data;
  uint32_t read_address;
  uint8_t stream_ready[2];
  uint8_t reset;
  uint8_t write_address_valid;
  uint8_t write_data_valid;
  uint8_t write_strobe;
  uint8_t write_answer_ready;
  uint8_t read_address_valid;
  uint8_t read_data_ready;
};

struct Outputs {
  Beat streams[2];
  uint32_t read_data;
  uint8_t stream_ready[2];
  uint8_t write_address_ready;
  uint8_t write_data_ready;
  uint8_t write_answer_valid;
  uint8_t write_answer;
  uint8_t read_address_ready;
  uint8_t read_data_valid;
  uint8_t read_answer;
  uint8_t interrupt;
};

struct Core {
  VerilatedContext context;
  std::unique_ptr<Vesp_core> top;
};

}  // namespace

extern "C" void *esplanade_core_new() {
  auto *core = new Core;
  // What reset does not set has some value, as on a chip.
  core->context.randReset(2);
  core->context.randSeed(1);
  core->top = std::make_unique<Vesp_core>(&core->context, "esp_core");
  return core;
}

extern "C" void esplanade_core_delete(void *pointer) {
  auto *core = static_cast<Core *>(pointer);
  core->top->final();
  delete core;
}

extern "C" void esplanade_core_cycle(void *pointer, const Inputs *in, Outputs *out) {
  Vesp_core &top = *static_cast<Core *>(pointer)->top;
  top.clk_i = 0;
  top.rst_ni = !in->reset;
  top.s_axil_awvalid = in->write_address_valid;
  top.s_axil_awaddr = in->write_address;
  top.s_axil_wvalid = in->write_data_valid;
  top.s_axil_wdata = in->write_data;
  top.s_axil_wstrb = in->write_strobe;
  top.s_axil_bready = in->write_answer_ready;
  top.s_axil_arvalid = in->read_address_valid;
  top.s_axil_araddr = in->read_address;
  top.s_axil_rready = in->read_data_ready;
  for (int word = 0; word < 4; word++) {
    top.s_axis_out_tdata[word] = in->streams[0].data[word];
    top.s_axis_in_tdata[word] = in->streams[1].data[word];
  }
  top.s_axis_out_tvalid = in->streams[0].valid;
  top.s_axis_out_tkeep = in->streams[0].keep;
  top.s_axis_out_tlast = in->streams[0].last;
  top.s_axis_in_tvalid = in->streams[1].valid;
  top.s_axis_in_tkeep = in->streams[1].keep;
  top.s_axis_in_tlast = in->streams[1].last;
  top.m_axis_out_tready = in->stream_ready[0];
  top.m_axis_in_tready = in->stream_ready[1];
  top.eval();

  out->write_address_ready = top.s_axil_awready;
  out->write_data_ready = top.s_axil_wready;
  out->write_answer_valid = top.s_axil_bvalid;
  out->write_answer = top.s_axil_bresp;
  out->read_address_ready = top.s_axil_arready;
  out->read_data_valid = top.s_axil_rvalid;
  out->read_data = top.s_axil_rdata;
  out->read_answer = top.s_axil_rresp;
  out->interrupt = top.irq_o;
  out->stream_ready[0] = top.s_axis_out_tready;
  out->stream_ready[1] = top.s_axis_in_tready;
  for (int word = 0; word < 4; word++) {
    out->streams[0].data[word] = top.m_axis_out_tdata[word];
    out->streams[1].data[word] = top.m_axis_in_tdata[word];
  }
  out->streams[0].user = top.m_axis_out_tuser;
  out->streams[0].keep = top.m_axis_out_tkeep;
  out->streams[0].valid = top.m_axis_out_tvalid;
  out->streams[0].last = top.m_axis_out_tlast;
  out->streams[1].user = top.m_axis_in_tuser;
  out->streams[1].keep = top.m_axis_in_tkeep;
  out->streams[1].valid = top.m_axis_in_tvalid;
  out->streams[1].last = top.m_axis_in_tlast;

  top.clk_i = 1;
  top.eval();
}
