// Gateway 2.0 as software sees it: what there is, counters of drops, an enable, and the way to the tables.
//
// docs/fpga-sections-registers.md has the map. The configuration bus only writes: nothing that a table holds can be read.
module sections_regs
  import sections_regmap_pkg::*;
  import axil_pkg::axil_req_t, axil_pkg::axil_rsp_t;
#(
  parameter int unsigned Ports        = 1,
  parameter int unsigned Policies     = 4,
  parameter int unsigned Sads         = 4,
  parameter int unsigned Encaps       = 4,
  parameter int unsigned Aes          = 4,
  parameter int unsigned AesPriority  = 0,
  parameter int unsigned Des          = 0,
  parameter bit          TripleDes    = 1'b0,
  parameter int unsigned Hmacs        = 4,
  parameter int unsigned HmacPriority = 0,
  parameter int unsigned Rows         = 1024
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  axil_req_t   axil_i,
  output axil_rsp_t   axil_o,
  // {table, row, word}; stays until it is taken.
  output logic        cfg_valid_o,
  input  logic        cfg_ready_i,
  output logic [19:0] cfg_addr_o,
  output logic [31:0] cfg_data_o,
  output logic        enable_o,
  input  logic [31:0] dropped_frame_i,
  input  logic [31:0] dropped_policy_i,
  input  logic [31:0] dropped_sa_i,
  input  logic [31:0] dropped_unit_i,
  input  logic [31:0] dropped_exit_i
);
  control_out_t control;
  logic counter_read;
  logic [20:0] counter_address;
  logic [31:0] counter_q;

  assign enable_o = control.enable;

  always_ff @(posedge clk_i) begin
    unique case (counter_address[2:0])
      3'd0: counter_q <= dropped_frame_i;
      3'd1: counter_q <= dropped_policy_i;
      3'd2: counter_q <= dropped_sa_i;
      3'd3: counter_q <= dropped_unit_i;
      default: counter_q <= dropped_exit_i;
    endcase
  end

  sections_regmap u_regmap (
    .clk_i,
    .rst_ni,
    .axil_i,
    .axil_o,
    .capabilities_i('{ports: 8'(Ports), triple_des: TripleDes, sas: 16'(Rows)}),
    .control_o     (control),
    .units_i       ('{policy: 8'(Policies), sad: 8'(Sads), encapsulation: 8'(Encaps), hmac: 8'(Hmacs)}),
    .cipher_units_i('{aes: 8'(Aes), aes_priority: 8'(AesPriority), des: 8'(Des), hmac_priority: 8'(HmacPriority)}),
    .counter_read_o   (counter_read),
    .counter_address_o(counter_address),
    .counter_data_i   (counter_q),
    .cfg_valid_o,
    .cfg_ready_i,
    .cfg_addr_o,
    .cfg_data_o,
    // The map knows the largest gateway.
    .cfg_refused_i    (cfg_addr_o[19:16] == SasTable && 32'(cfg_addr_o[15:6]) >= Rows)
  );

  logic unused;
  assign unused = &{counter_read, counter_address[20:3]};
endmodule
