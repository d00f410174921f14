// Gateway 2.0 with its registers: esp_sections behind AXI4-Lite.
module sections_core #(
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
  input  logic                    clk_i,
  input  logic                    rst_ni,
  input  logic                    clk_sad_i,
  input  logic                    rst_sad_ni,
  input  logic                    s_axil_awvalid,
  output logic                    s_axil_awready,
  input  logic [22:0]             s_axil_awaddr,
  input  logic                    s_axil_wvalid,
  output logic                    s_axil_wready,
  input  logic [31:0]             s_axil_wdata,
  input  logic [ 3:0]             s_axil_wstrb,
  output logic                    s_axil_bvalid,
  input  logic                    s_axil_bready,
  output logic [ 1:0]             s_axil_bresp,
  input  logic                    s_axil_arvalid,
  output logic                    s_axil_arready,
  input  logic [22:0]             s_axil_araddr,
  output logic                    s_axil_rvalid,
  input  logic                    s_axil_rready,
  output logic [31:0]             s_axil_rdata,
  output logic [ 1:0]             s_axil_rresp,
  input  logic [Ports-1:0]        s_axis_tvalid_i,
  output logic [Ports-1:0]        s_axis_tready_o,
  input  logic [Ports-1:0][127:0] s_axis_tdata_i,
  input  logic [Ports-1:0][15:0]  s_axis_tkeep_i,
  input  logic [Ports-1:0]        s_axis_tlast_i,
  output logic [Ports-1:0]        m_axis_tvalid_o,
  input  logic [Ports-1:0]        m_axis_tready_i,
  output logic [Ports-1:0][127:0] m_axis_tdata_o,
  output logic [Ports-1:0][15:0]  m_axis_tkeep_o,
  output logic [Ports-1:0]        m_axis_tlast_o
);
  logic cfg_valid, cfg_ready, enable;
  logic [19:0] cfg_addr;
  logic [31:0] cfg_data, dropped_frame, dropped_policy, dropped_sa, dropped_unit, dropped_exit;
  logic [Ports-1:0] ready;
  assign s_axis_tready_o = ready & {Ports{enable}};

  // The register bus.
  axil_pkg::axil_req_t axil_req;
  axil_pkg::axil_rsp_t axil_rsp;
  assign axil_req = '{
      aw_valid: s_axil_awvalid,
      aw_addr: s_axil_awaddr,
      w_valid: s_axil_wvalid,
      w_data: s_axil_wdata,
      w_strb: s_axil_wstrb,
      b_ready: s_axil_bready,
      ar_valid: s_axil_arvalid,
      ar_addr: s_axil_araddr,
      r_ready: s_axil_rready
  };
  assign s_axil_awready = axil_rsp.aw_ready;
  assign s_axil_wready  = axil_rsp.w_ready;
  assign s_axil_bvalid  = axil_rsp.b_valid;
  assign s_axil_bresp   = axil_rsp.b_resp;
  assign s_axil_arready = axil_rsp.ar_ready;
  assign s_axil_rvalid  = axil_rsp.r_valid;
  assign s_axil_rdata   = axil_rsp.r_data;
  assign s_axil_rresp   = axil_rsp.r_resp;

  sections_regs #(
    .Ports(Ports), .Policies(Policies), .Sads(Sads), .Encaps(Encaps), .Aes(Aes), .AesPriority(AesPriority), .Des(Des),
    .TripleDes(TripleDes), .Hmacs(Hmacs), .HmacPriority(HmacPriority), .Rows(Rows)
  ) u_regs (
    .clk_i,
    .rst_ni,
    .axil_i(axil_req),
    .axil_o(axil_rsp),
    .cfg_valid_o(cfg_valid),
    .cfg_ready_i(cfg_ready),
    .cfg_addr_o (cfg_addr),
    .cfg_data_o (cfg_data),
    .enable_o   (enable),
    .dropped_frame_i (dropped_frame),
    .dropped_policy_i(dropped_policy),
    .dropped_sa_i    (dropped_sa),
    .dropped_unit_i  (dropped_unit),
    .dropped_exit_i  (dropped_exit)
  );

  esp_sections #(
    .Ports(Ports), .Policies(Policies), .Sads(Sads), .Encaps(Encaps), .Aes(Aes), .AesPriority(AesPriority), .Des(Des),
    .TripleDes(TripleDes), .Hmacs(Hmacs), .HmacPriority(HmacPriority), .Rows(Rows)
  ) u_sections (
    .clk_i,
    .rst_ni,
    .clk_sad_i,
    .rst_sad_ni,
    .cfg_valid_i(cfg_valid),
    .cfg_ready_o(cfg_ready),
    .cfg_addr_i (cfg_addr),
    .cfg_data_i (cfg_data),
    .s_axis_tvalid_i(s_axis_tvalid_i & {Ports{enable}}),
    .s_axis_tready_o(ready),
    .s_axis_tdata_i,
    .s_axis_tkeep_i,
    .s_axis_tlast_i,
    .m_axis_tvalid_o,
    .m_axis_tready_i,
    .m_axis_tdata_o,
    .m_axis_tkeep_o,
    .m_axis_tlast_o,
    .dropped_frame_o (dropped_frame),
    .dropped_policy_o(dropped_policy),
    .dropped_sa_o    (dropped_sa),
    .dropped_unit_o  (dropped_unit),
    .dropped_exit_o  (dropped_exit)
  );
endmodule
