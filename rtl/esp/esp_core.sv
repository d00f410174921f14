// The ESP core: an outbound and an inbound lane, and the registers through which software sets them up.
//
// Frames are IP packets on AXI4-Stream; TUSER of what leaves is esp_pkg::user_t. Outbound frames come from the protected
// side, inbound ones from the network.
module esp_core
  import esp_pkg::*;
#(
  parameter int unsigned Entries   = 64,    // of each policy, at most 64
  parameter int unsigned Rows      = 1024,  // of each SAD, at most 1024
  parameter int unsigned HmacUnits = 0,     // of each lane; 0: AES-GCM only
  parameter bit          Gcm       = 1'b1,  // 0: AES-CTR with HMAC only
  parameter int unsigned MaxBytes  = 2048,  // of a clear packet
  parameter int unsigned Beats     = 512,   // of each frame buffer
  parameter int unsigned PolicyPiece = 9,   // bits: 9 for block RAM, 4 for LUTs
  // Of the ciphers; what synthesis takes is in rtl/syn.
  parameter int unsigned RoundLatency = 2,
  parameter int unsigned SboxKind     = 0,
  parameter int unsigned GhashStages  = 3,
  parameter int unsigned GhashLeaf    = 32
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 s_axil_awvalid,
  output logic                 s_axil_awready,
  input  logic [         22:0] s_axil_awaddr,
  input  logic                 s_axil_wvalid,
  output logic                 s_axil_wready,
  input  logic [         31:0] s_axil_wdata,
  input  logic [          3:0] s_axil_wstrb,
  output logic                 s_axil_bvalid,
  input  logic                 s_axil_bready,
  output logic [          1:0] s_axil_bresp,
  input  logic                 s_axil_arvalid,
  output logic                 s_axil_arready,
  input  logic [         22:0] s_axil_araddr,
  output logic                 s_axil_rvalid,
  input  logic                 s_axil_rready,
  output logic [         31:0] s_axil_rdata,
  output logic [          1:0] s_axil_rresp,
  output logic                 irq_o,
  input  logic                 s_axis_out_tvalid,
  output logic                 s_axis_out_tready,
  input  logic [DataWidth-1:0] s_axis_out_tdata,
  input  logic [KeepWidth-1:0] s_axis_out_tkeep,
  input  logic                 s_axis_out_tlast,
  output logic                 m_axis_out_tvalid,
  input  logic                 m_axis_out_tready,
  output logic [DataWidth-1:0] m_axis_out_tdata,
  output logic [KeepWidth-1:0] m_axis_out_tkeep,
  output logic                 m_axis_out_tlast,
  output logic [         31:0] m_axis_out_tuser,
  input  logic                 s_axis_in_tvalid,
  output logic                 s_axis_in_tready,
  input  logic [DataWidth-1:0] s_axis_in_tdata,
  input  logic [KeepWidth-1:0] s_axis_in_tkeep,
  input  logic                 s_axis_in_tlast,
  output logic                 m_axis_in_tvalid,
  input  logic                 m_axis_in_tready,
  output logic [DataWidth-1:0] m_axis_in_tdata,
  output logic [KeepWidth-1:0] m_axis_in_tkeep,
  output logic                 m_axis_in_tlast,
  output logic [         31:0] m_axis_in_tuser
);
  typedef enum logic [3:0] {
    OutControl = 4'd0,
    InControl  = 4'd1,
    OutPolicy  = 4'd2,
    InPolicy   = 4'd3,
    OutSa      = 4'd4,
    InSa       = 4'd5,
    OutKey     = 4'd6,
    InKey      = 4'd7,
    OutSnap    = 4'd8,
    InSnap     = 4'd9
  } table_e;

  logic cfg_valid, cfg_ready;
  logic [19:0] cfg_addr;
  logic [31:0] cfg_data;
  logic [9:0] cfg_pick;
  logic [15:0] cfg_readies;  // a table that is not there takes all
  row_t cfg_row;
  logic [5:0] cfg_word;
  assign cfg_pick  = cfg_valid ? 10'd1 << cfg_addr[19:16] : '0;
  assign cfg_row   = cfg_addr[15:6];
  assign cfg_word  = cfg_addr[5:0];
  assign cfg_ready = cfg_readies[cfg_addr[19:16]];

  logic out_enable, in_enable, out_exceptions_q, in_exceptions_q;
  logic [191:0] out_snapshot, in_snapshot;
  logic out_count_valid, in_count_valid, out_event_valid, in_event_valid, in_waiting_q;
  drop_e out_count_reason, in_count_reason;
  logic [15:0] out_count_bytes, in_count_bytes;
  event_e out_event, in_event, in_event_q;
  row_t out_event_row, in_event_row, in_event_row_q;

  // Both lanes may have something to say in the same cycle.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      out_exceptions_q <= 1'b0;
      in_exceptions_q  <= 1'b0;
      in_waiting_q     <= 1'b0;
    end else begin
      if (cfg_pick[OutControl] && cfg_word == '0) out_exceptions_q <= cfg_data[0];
      if (cfg_pick[InControl] && cfg_word == '0) in_exceptions_q <= cfg_data[0];
      in_waiting_q <= in_event_valid || (in_waiting_q && out_event_valid);
    end
  end
  always_ff @(posedge clk_i) begin
    if (in_event_valid) begin
      in_event_q     <= in_event;
      in_event_row_q <= in_event_row;
    end
  end

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

  esp_regs #(
    .Policies (Entries),
    .Sas      (Rows),
    .HmacUnits(HmacUnits),
    .Gcm      (Gcm)
  ) u_regs (
    .clk_i,
    .rst_ni,
    .axil_i(axil_req),
    .axil_o(axil_rsp),
    .irq_o,
    .cfg_valid_o(cfg_valid),
    .cfg_ready_i(cfg_ready),
    .cfg_addr_o(cfg_addr),
    .cfg_data_o(cfg_data),
    .out_enable_o(out_enable),
    .in_enable_o(in_enable),
    .out_snapshot_i(out_snapshot),
    .in_snapshot_i(in_snapshot),
    .out_count_valid_i(out_count_valid),
    .out_count_reason_i(out_count_reason),
    .out_count_bytes_i(out_count_bytes),
    .in_count_valid_i(in_count_valid),
    .in_count_reason_i(in_count_reason),
    .in_count_bytes_i(in_count_bytes),
    .event_valid_i(out_event_valid || in_waiting_q),
    .event_kind_i(out_event_valid ? out_event : in_event_q),
    .event_lane_i(!out_event_valid),
    .event_row_i(16'(out_event_valid ? out_event_row : in_event_row_q))
  );

  logic out_policy_ready, in_policy_ready, out_sa_ready, in_sa_ready, out_key_ready, in_key_ready;
  logic out_snap_ready, in_snap_ready;
  always_comb begin
    cfg_readies            = '1;
    cfg_readies[OutPolicy] = out_policy_ready;
    cfg_readies[InPolicy]  = in_policy_ready;
    cfg_readies[OutSa]     = out_sa_ready;
    cfg_readies[InSa]      = in_sa_ready;
    cfg_readies[OutKey]    = out_key_ready;
    cfg_readies[InKey]     = in_key_ready;
    cfg_readies[OutSnap]   = out_snap_ready;
    cfg_readies[InSnap]    = in_snap_ready;
  end

  beat_t out_beat, in_beat;
  user_t out_user, in_user;
  assign {m_axis_out_tdata, m_axis_out_tkeep, m_axis_out_tlast} = out_beat;
  assign {m_axis_in_tdata, m_axis_in_tkeep, m_axis_in_tlast}    = in_beat;
  assign m_axis_out_tuser = out_user;
  assign m_axis_in_tuser  = in_user;

  esp_out #(
    .Entries(Entries),
    .Rows(Rows),
    .HmacUnits(HmacUnits),
    .Gcm(Gcm),
    .MaxBytes(MaxBytes),
    .Beats(Beats),
    .PolicyPiece(PolicyPiece),
    .RoundLatency(RoundLatency),
    .SboxKind(SboxKind),
    .GhashStages(GhashStages),
    .GhashLeaf(GhashLeaf)
  ) u_out (
    .clk_i,
    .rst_ni,
    .enable_i(out_enable),
    .exceptions_i(out_exceptions_q),
    .cfg_policy_valid_i(cfg_pick[OutPolicy]),
    .cfg_policy_ready_o(out_policy_ready),
    .cfg_sa_valid_i(cfg_pick[OutSa]),
    .cfg_sa_ready_o(out_sa_ready),
    .cfg_key_valid_i(cfg_pick[OutKey]),
    .cfg_key_ready_o(out_key_ready),
    .cfg_row_i(cfg_row),
    .cfg_word_i(cfg_word),
    .cfg_data_i(cfg_data),
    .snap_valid_i(cfg_pick[OutSnap]),
    .snap_ready_o(out_snap_ready),
    .snap_row_i(cfg_data[RowWidth-1:0]),
    .snap_o(out_snapshot),
    .valid_i(s_axis_out_tvalid),
    .ready_o(s_axis_out_tready),
    .beat_i({s_axis_out_tdata, s_axis_out_tkeep, s_axis_out_tlast}),
    .valid_o(m_axis_out_tvalid),
    .ready_i(m_axis_out_tready),
    .beat_o(out_beat),
    .user_o(out_user),
    .count_valid_o(out_count_valid),
    .count_reason_o(out_count_reason),
    .count_bytes_o(out_count_bytes),
    .event_valid_o(out_event_valid),
    .event_o(out_event),
    .event_row_o(out_event_row)
  );

  // What the other end makes of a clear packet must go in: outer headers, SPI and number, IV, padding, trailer and ICV
  // take 85 bytes at most. Peers may pad more.
  localparam int unsigned SealedBytes = MaxBytes + 128;
  esp_in #(
    .Entries(Entries),
    .Rows(Rows),
    .HmacUnits(HmacUnits),
    .Gcm(Gcm),
    .MaxBytes(SealedBytes),
    .Beats(Beats),
    .PolicyPiece(PolicyPiece),
    .RoundLatency(RoundLatency),
    .SboxKind(SboxKind),
    .GhashStages(GhashStages),
    .GhashLeaf(GhashLeaf)
  ) u_in (
    .clk_i,
    .rst_ni,
    .enable_i(in_enable),
    .exceptions_i(in_exceptions_q),
    .cfg_policy_valid_i(cfg_pick[InPolicy]),
    .cfg_policy_ready_o(in_policy_ready),
    .cfg_sa_valid_i(cfg_pick[InSa]),
    .cfg_sa_ready_o(in_sa_ready),
    .cfg_key_valid_i(cfg_pick[InKey]),
    .cfg_key_ready_o(in_key_ready),
    .cfg_row_i(cfg_row),
    .cfg_word_i(cfg_word),
    .cfg_data_i(cfg_data),
    .snap_valid_i(cfg_pick[InSnap]),
    .snap_ready_o(in_snap_ready),
    .snap_row_i(cfg_data[RowWidth-1:0]),
    .snap_o(in_snapshot),
    .valid_i(s_axis_in_tvalid),
    .ready_o(s_axis_in_tready),
    .beat_i({s_axis_in_tdata, s_axis_in_tkeep, s_axis_in_tlast}),
    .valid_o(m_axis_in_tvalid),
    .ready_i(m_axis_in_tready),
    .beat_o(in_beat),
    .user_o(in_user),
    .count_valid_o(in_count_valid),
    .count_reason_o(in_count_reason),
    .count_bytes_o(in_count_bytes),
    .event_valid_o(in_event_valid),
    .event_o(in_event),
    .event_row_o(in_event_row)
  );
endmodule
