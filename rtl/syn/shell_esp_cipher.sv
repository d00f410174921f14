// esp_cipher on four pins.
module shell_esp_cipher
  import esp_pkg::*;
#(
  parameter bit          Open         = 1'b0,
  parameter int unsigned Rows         = 1024,
  parameter int unsigned HmacUnits    = 0,
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
    logic         cfg_valid;
    logic [9:0]   cfg_row;
    logic [5:0]   cfg_word;
    logic [31:0]  cfg_data;
    logic         cmd_valid;
    cipher_cmd_t  cmd;
    logic         body_valid;
    beat_t        body;
    logic         icv_valid;
    logic [127:0] icv;
    logic         out_ready;
    logic         tag_ready;
  } in_t;

  typedef struct packed {
    logic        cfg_ready;
    logic        cmd_ready;
    logic        body_ready;
    logic        icv_ready;
    logic        out_valid;
    beat_t       out;
    logic        tap_valid;
    beat_t       tap;
    logic        tag_valid;
    cipher_tag_t tag;
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

  esp_cipher #(
    .Open(Open),
    .Rows(Rows),
    .HmacUnits(HmacUnits),
    .RoundLatency(RoundLatency),
    .SboxKind(SboxKind),
    .GhashStages(GhashStages),
    .GhashLeaf(GhashLeaf)
  ) u_core (
    .clk_i,
    .rst_ni(reset_n),
    .cfg_valid_i(in.cfg_valid),
    .cfg_ready_o(out.cfg_ready),
    .cfg_row_i(in.cfg_row),
    .cfg_word_i(in.cfg_word),
    .cfg_data_i(in.cfg_data),
    .cmd_valid_i(in.cmd_valid),
    .cmd_ready_o(out.cmd_ready),
    .cmd_i(in.cmd),
    .body_valid_i(in.body_valid),
    .body_ready_o(out.body_ready),
    .body_i(in.body),
    .icv_valid_i(in.icv_valid),
    .icv_ready_o(out.icv_ready),
    .icv_i(in.icv),
    .out_valid_o(out.out_valid),
    .out_ready_i(in.out_ready),
    .out_o(out.out),
    .tap_valid_o(out.tap_valid),
    .tap_o(out.tap),
    .tag_valid_o(out.tag_valid),
    .tag_ready_i(in.tag_ready),
    .tag_o(out.tag)
  );
endmodule
