// The SAD of Gateway 2.0 in a clock domain of its own, and the arbiter that lets the units of the SAD section at it.
//
// A unit asks for a row and is told the SA with the sequence number that its packet gets. Requests go round robin into a
// FIFO to the SAD's clock; an answer carries the unit's number back. Rows are written word by word, never read by the
// outside. After reset the SAD is emptied first.
//
// Words of a row, 32 bits, numbers as such, keys and states with their first byte in [31:24]:
//   0      SPI
//   1      [0] valid, [1] 256-bit key, [6:4] type of the cipher, [10:8] type of the HMAC; writing it commits nothing else
//   2, 3   outer source, outer destination
//   4-11   key, 12-16 inner HMAC state, 17-21 outer
//   22     last sequence number that was used (0 for a new SA)
// To change an SA, clear word 1 first and write it last. Any write to word 63 wipes the row.
module sad_access
  import sections_pkg::*;
#(
  parameter  int unsigned Units = 4,
  parameter  int unsigned Rows  = 1024,  // a power of two
  localparam int unsigned UnitWidth = Units > 1 ? $clog2(Units) : 1
) (
  input  logic                           clk_i,
  input  logic                           rst_ni,
  input  logic [Units-1:0]               request_i,    // until granted, the row with it
  input  logic [Units-1:0][RowWidth-1:0] row_i,
  output logic [Units-1:0]               grant_o,
  output logic [Units-1:0]               answer_o,
  output sa_t                            sa_o,
  input  logic                           cfg_valid_i,
  output logic                           cfg_ready_o,
  input  logic [RowWidth-1:0]            cfg_row_i,
  input  logic [5:0]                     cfg_word_i,
  input  logic [31:0]                    cfg_data_i,
  input  logic                           clk_sad_i,
  input  logic                           rst_sad_ni
);
  localparam int unsigned AddrWidth = $clog2(Rows);
  localparam int unsigned Words = 22;
  localparam logic [5:0] SequenceWord = 6'd22, WipeWord = 6'd63;

  // The units' side.
  logic ask_ready, answer_valid;
  logic [UnitWidth-1:0] index, answer_unit;
  logic [Units-1:0] granted;
  rr_arbiter #(
    .Width(Units)
  ) u_arbiter (
    .clk_i,
    .rst_ni,
    .request_i,
    .take_i (ask_ready),
    .grant_o(granted),
    .index_o(index)
  );
  assign grant_o = ask_ready ? granted : '0;
  always_comb for (int unsigned u = 0; u < Units; u++) answer_o[u] = answer_valid && answer_unit == UnitWidth'(u);

  // Across. A unit has one request at a time, so answers always find room.
  logic sad_ask_valid, sad_ask, sad_answer_valid, sad_answer_ready, sad_cfg_valid, sad_cfg;
  logic [UnitWidth-1:0] sad_unit;
  logic [RowWidth-1:0] sad_row, sad_cfg_row;
  logic [5:0] sad_cfg_word;
  logic [31:0] sad_cfg_data;
  logic [UnitWidth-1:0] unit_q;
  sa_t found;
  async_fifo #(
    .Width(UnitWidth + RowWidth),
    .Depth(2 ** $clog2(Units > 4 ? Units : 4))
  ) u_ask (
    .put_clk_i  (clk_i),
    .put_rst_ni (rst_ni),
    .put_valid_i(|request_i),
    .put_ready_o(ask_ready),
    .put_data_i ({index, row_i[index]}),
    .get_clk_i  (clk_sad_i),
    .get_rst_ni (rst_sad_ni),
    .get_valid_o(sad_ask_valid),
    .get_ready_i(sad_ask),
    .get_data_o ({sad_unit, sad_row})
  );
  async_fifo #(
    .Width(UnitWidth + $bits(sa_t)),
    .Depth(4)
  ) u_answer (
    .put_clk_i  (clk_sad_i),
    .put_rst_ni (rst_sad_ni),
    .put_valid_i(sad_answer_valid),
    .put_ready_o(sad_answer_ready),
    .put_data_i ({unit_q, found}),
    .get_clk_i  (clk_i),
    .get_rst_ni (rst_ni),
    .get_valid_o(answer_valid),
    .get_ready_i(1'b1),
    .get_data_o ({answer_unit, sa_o})
  );
  async_fifo #(
    .Width(RowWidth + 38),
    .Depth(4)
  ) u_cfg (
    .put_clk_i  (clk_i),
    .put_rst_ni (rst_ni),
    .put_valid_i(cfg_valid_i),
    .put_ready_o(cfg_ready_o),
    .put_data_i ({cfg_row_i, cfg_word_i, cfg_data_i}),
    .get_clk_i  (clk_sad_i),
    .get_rst_ni (rst_sad_ni),
    .get_valid_o(sad_cfg_valid),
    .get_ready_i(sad_cfg),
    .get_data_o ({sad_cfg_row, sad_cfg_word, sad_cfg_data})
  );

  // The SAD's side: a request is read, then answered while its sequence number is written back.
  typedef enum logic [1:0] {Wipe, Idle, Read, Answer} state_e;
  state_e state_q;
  logic [AddrWidth-1:0] address_q, address;
  logic [Words-1:0][31:0] row_q;
  logic [31:0] sequence_q;
  logic sequence_write;
  logic [31:0] sequence_data;
  logic good, wipe;

  assign sad_cfg          = state_q == Idle;
  assign sad_ask          = state_q == Idle && !sad_cfg_valid;
  assign sad_answer_valid = state_q == Answer;
  assign wipe             = state_q == Wipe || (sad_cfg && sad_cfg_valid && sad_cfg_word == WipeWord);
  assign address          = state_q == Idle ? AddrWidth'(sad_cfg_valid ? sad_cfg_row : sad_row) : address_q;

  always_ff @(posedge clk_sad_i or negedge rst_sad_ni) begin
    if (!rst_sad_ni) begin
      state_q   <= Wipe;
      address_q <= '0;
    end else begin
      unique case (state_q)
        Wipe: begin
          address_q <= address_q + 1'b1;
          if (&address_q) state_q <= Idle;
        end
        Idle: if (sad_ask && sad_ask_valid) begin
          state_q   <= Read;
          address_q <= address;
        end
        Read: state_q <= Answer;
        default: if (sad_answer_ready) state_q <= Idle;
      endcase
    end
  end
  always_ff @(posedge clk_sad_i) if (state_q == Idle) unit_q <= sad_unit;

  for (genvar w = 0; w < Words; w++) begin : gen_word
    logic [31:0] mem[Rows];
    always_ff @(posedge clk_sad_i) begin
      if (wipe || (sad_cfg && sad_cfg_valid && sad_cfg_word == 6'(w))) mem[address] <= wipe ? '0 : sad_cfg_data;
      row_q[w] <= mem[address];
    end
  end

  // Without an HMAC it is no SA that may be used (RFC 8221, 4), nor with its numbers used up (RFC 4303, 3.3.3).
  logic [31:0] sequence_mem[Rows];
  assign good           = row_q[1][0] && row_q[1][10:8] != UnitPass && sequence_q != '1;
  assign sequence_write = wipe || (sad_cfg && sad_cfg_valid && sad_cfg_word == SequenceWord) ||
                          (state_q == Answer && sad_answer_ready && good);
  assign sequence_data  = wipe ? '0 : state_q == Answer ? sequence_q + 1'b1 : sad_cfg_data;
  always_ff @(posedge clk_sad_i) begin
    if (sequence_write) sequence_mem[address] <= sequence_data;
    sequence_q <= sequence_mem[address];
  end

  always_comb begin
    found.encap           = good ? UnitMain : UnitNobody;
    found.cipher          = unit_e'(row_q[1][6:4]);
    found.auth            = unit_e'(row_q[1][10:8]);
    found.wide            = row_q[1][1];
    found.spi             = row_q[0];
    found.sequence_number = sequence_q + 1'b1;
    found.source          = row_q[2];
    found.destination     = row_q[3];
    for (int unsigned i = 0; i < 8; i++) found.key[255-32*i-:32] = row_q[4+i];
    for (int unsigned i = 0; i < 5; i++) begin
      found.states.inner[159-32*i-:32] = row_q[12+i];
      found.states.outer[159-32*i-:32] = row_q[17+i];
    end
  end

  logic unused;
  assign unused = &{row_q[1][31:11], row_q[1][7], row_q[1][3:2], sad_row, sad_cfg_row};
endmodule
