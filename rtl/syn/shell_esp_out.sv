// The whole outbound lane on four pins.
module shell_esp_out
  import esp_pkg::*;
#(
  parameter int unsigned Entries   = 64,
  parameter int unsigned Rows      = 1024,
  parameter int unsigned HmacUnits = 0,
  parameter bit          Gcm       = 1'b1,
  parameter int unsigned PolicyPiece  = 9,
  parameter int unsigned RoundLatency = 3,
  parameter int unsigned SboxKind     = 1,
  parameter int unsigned GhashStages  = 4,
  parameter int unsigned GhashLeaf    = 8
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic in_i,
  output logic out_o
);
  typedef struct packed {
    logic        enable;
    logic        exceptions;
    logic        cfg_policy_valid;
    logic        cfg_sa_valid;
    logic        cfg_key_valid;
    row_t        cfg_row;
    logic [5:0]  cfg_word;
    logic [31:0] cfg_data;
    logic        snap_valid;
    row_t        snap_row;
    logic        valid;
    beat_t       beat;
    logic        ready;
  } in_t;

  typedef struct packed {
    logic         cfg_policy_ready;
    logic         cfg_sa_ready;
    logic         cfg_key_ready;
    logic         snap_ready;
    logic [191:0] snap;
    logic         ready;
    logic         valid;
    beat_t        beat;
    user_t        user;
    logic         count_valid;
    drop_e        count_reason;
    logic [15:0]  count_bytes;
    logic         event_valid;
    event_e       kind;
    row_t         event_row;
  } out_t;

  in_t  in;
  out_t out;
  logic reset_n;
  shell_pins #(
    .InWidth ($bits(in_t)),
    .OutWidth($bits(out_t))
  ) u_pins (
    .clk_i,
    .rst_ni,
    .in_i,
    .out_o,
    .core_rst_no(reset_n),
    .core_o(in),
    .core_i(out)
  );

  esp_out #(
    .Entries(Entries),
    .Rows(Rows),
    .HmacUnits(HmacUnits),
    .Gcm(Gcm),
    .PolicyPiece(PolicyPiece),
    .RoundLatency(RoundLatency),
    .SboxKind(SboxKind),
    .GhashStages(GhashStages),
    .GhashLeaf(GhashLeaf)
  ) u_core (
    .clk_i,
    .rst_ni(reset_n),
    .enable_i(in.enable),
    .exceptions_i(in.exceptions),
    .cfg_policy_valid_i(in.cfg_policy_valid),
    .cfg_policy_ready_o(out.cfg_policy_ready),
    .cfg_sa_valid_i(in.cfg_sa_valid),
    .cfg_sa_ready_o(out.cfg_sa_ready),
    .cfg_key_valid_i(in.cfg_key_valid),
    .cfg_key_ready_o(out.cfg_key_ready),
    .cfg_row_i(in.cfg_row),
    .cfg_word_i(in.cfg_word),
    .cfg_data_i(in.cfg_data),
    .snap_valid_i(in.snap_valid),
    .snap_ready_o(out.snap_ready),
    .snap_row_i(in.snap_row),
    .snap_o(out.snap),
    .valid_i(in.valid),
    .ready_o(out.ready),
    .beat_i(in.beat),
    .valid_o(out.valid),
    .ready_i(in.ready),
    .beat_o(out.beat),
    .user_o(out.user),
    .count_valid_o(out.count_valid),
    .count_reason_o(out.count_reason),
    .count_bytes_o(out.count_bytes),
    .event_valid_o(out.event_valid),
    .event_o(out.kind),
    .event_row_o(out.event_row)
  );
endmodule
