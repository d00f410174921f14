// Gateway 2.0 as software sees it: what there is, counters of drops, an enable, and the way to the tables.
//
// docs/fpga-sections-registers.md has the map. The configuration bus only writes: nothing that a table holds can be read.
module sections_regs
  import sections_regmap_pkg::*;
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
  input  logic        s_axil_awvalid,
  output logic        s_axil_awready,
  input  logic [22:0] s_axil_awaddr,
  input  logic        s_axil_wvalid,
  output logic        s_axil_wready,
  input  logic [31:0] s_axil_wdata,
  input  logic [ 3:0] s_axil_wstrb,
  output logic        s_axil_bvalid,
  input  logic        s_axil_bready,
  output logic [ 1:0] s_axil_bresp,
  input  logic        s_axil_arvalid,
  output logic        s_axil_arready,
  input  logic [22:0] s_axil_araddr,
  output logic        s_axil_rvalid,
  input  logic        s_axil_rready,
  output logic [31:0] s_axil_rdata,
  output logic [ 1:0] s_axil_rresp,
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
    .s_axil_awvalid,
    .s_axil_awready,
    .s_axil_awaddr,
    .s_axil_wvalid,
    .s_axil_wready,
    .s_axil_wdata,
    .s_axil_wstrb,
    .s_axil_bvalid,
    .s_axil_bready,
    .s_axil_bresp,
    .s_axil_arvalid,
    .s_axil_arready,
    .s_axil_araddr,
    .s_axil_rvalid,
    .s_axil_rready,
    .s_axil_rdata,
    .s_axil_rresp,
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
