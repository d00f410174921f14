// The SAD of Gateway 2.0 in a clock domain of its own, and the arbiter that lets the units of the SAD section at it.
//
// A unit asks for a row and is told the SA with the sequence number that its packet gets, in SaBeats beats as they go in
// front of the packet. Requests go round robin into a FIFO to the SAD's clock; an answer carries the unit's number back.
// Rows are written word by word, never read by the outside. After reset the SAD is emptied first.
//
// Words of a row, 32 bits, numbers as such, keys and states with their first byte in [31:24]:
//   0      SPI
//   1      [0] valid, [1] 256-bit key, [6:4] type of the cipher, [10:8] type of the HMAC, [18:12] generation; writing it commits
//          nothing else
//   2, 3   outer source, outer destination
//   4-11   key, 12-16 inner HMAC state, 17-21 outer
//   22     last sequence number that was used (0 for a new SA)
// To change an SA, clear word 1 first and write it last, with another generation: packets that the policy sent to the SA before
// come later and get none. Any write to word 63 wipes the row.
module sad_access
  import sections_pkg::*;
  import esp_pkg::generation_t, esp_pkg::GenerationWidth;
#(
  parameter  int unsigned Units = 4,
  parameter  int unsigned Rows  = 1024,  // a power of two
  localparam int unsigned UnitWidth = Units > 1 ? $clog2(Units) : 1
) (
  input  logic                           clk_i,
  input  logic                           rst_ni,
  input  logic [Units-1:0]               request_i,    // until granted, the row with it
  input  logic [Units-1:0][RowWidth-1:0] row_i,
  input  generation_t [Units-1:0]        generation_i, // of the SA that is wanted there
  output logic [Units-1:0]               grant_o,
  output logic [Units-1:0]               answer_o,     // a beat of its answer; it must take it
  output sa_t                            sa_o,
  output logic [127:0]                   words_o,
  input  logic                           cfg_valid_i,
  output logic                           cfg_ready_o,
  input  logic [RowWidth-1:0]            cfg_row_i,
  input  logic [5:0]                     cfg_word_i,
  input  logic [31:0]                    cfg_data_i,
  input  logic                           clk_sad_i,
  input  logic                           rst_sad_ni
);
  localparam int unsigned AddrWidth = $clog2(Rows);
  localparam int unsigned IndexWidth = 3;  // of a beat in a row
  localparam logic [5:0] Words = 6'd22;
  localparam logic [5:0] SequenceWord = 6'd22, WipeWord = 6'd63;

  typedef struct packed {
    logic [UnitWidth-1:0] unit;
    sa_t sa;
    logic [127:0] words;
  } answer_t;
  answer_t answer, put_q;

  // The units' side.
  logic ask_ready, answer_valid;
  logic [UnitWidth-1:0] index;
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
  always_comb for (int unsigned u = 0; u < Units; u++) answer_o[u] = answer_valid && answer.unit == UnitWidth'(u);

  // Across. A unit has one request at a time, so that it always has room for its answer.
  logic sad_ask_valid, sad_ask, put_valid_q, put_ready, sad_cfg_valid, sad_cfg;
  logic [UnitWidth-1:0] sad_unit;
  logic [RowWidth-1:0] sad_row, sad_cfg_row;
  generation_t sad_generation;
  logic [5:0] sad_cfg_word;
  logic [31:0] sad_cfg_data;
  async_fifo #(
    .Width(UnitWidth + RowWidth + GenerationWidth),
    .Depth(2 ** $clog2(Units > 4 ? Units : 4))
  ) u_ask (
    .put_clk_i  (clk_i),
    .put_rst_ni (rst_ni),
    .put_valid_i(|request_i),
    .put_ready_o(ask_ready),
    .put_data_i ({index, row_i[index], generation_i[index]}),
    .get_clk_i  (clk_sad_i),
    .get_rst_ni (rst_sad_ni),
    .get_valid_o(sad_ask_valid),
    .get_ready_i(sad_ask),
    .get_data_o ({sad_unit, sad_row, sad_generation})
  );
  async_fifo #(
    .Width($bits(answer_t)),
    .Depth(16)
  ) u_answer (
    .put_clk_i  (clk_sad_i),
    .put_rst_ni (rst_sad_ni),
    .put_valid_i(put_valid_q),
    .put_ready_o(put_ready),
    .put_data_i (put_q),
    .get_clk_i  (clk_i),
    .get_rst_ni (rst_ni),
    .get_valid_o(answer_valid),
    .get_ready_i(1'b1),
    .get_data_o (answer)
  );
  assign sa_o    = answer.sa;
  assign words_o = answer.words;
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

  // The SAD's side. What is done to memory is registered first: in Idle a write or a request is taken, in Read the row's
  // beats are read one after another.
  typedef enum logic [1:0] {Wipe, Idle, Read} state_e;
  state_e state_q;
  logic [AddrWidth-1:0] row_q;
  logic [IndexWidth-1:0] index_q;
  logic [UnitWidth-1:0] unit_q;
  generation_t generation_q;
  logic all_q;  // rows are wiped
  logic write_q, move, wipe;
  logic [5:0] word_q;
  logic [31:0] data_q;

  assign sad_cfg = state_q == Idle;
  assign sad_ask = state_q == Idle && !sad_cfg_valid;
  assign wipe    = state_q == Wipe;
  assign move    = !put_valid_q || put_ready;

  always_ff @(posedge clk_sad_i or negedge rst_sad_ni) begin
    if (!rst_sad_ni) begin
      state_q <= Wipe;
      all_q   <= 1'b1;
      row_q   <= '0;
      index_q <= '0;
      write_q <= 1'b0;
    end else begin
      write_q <= sad_cfg && sad_cfg_valid && sad_cfg_word != WipeWord;
      unique case (state_q)
        Wipe: begin
          {row_q, index_q} <= {row_q, index_q} + 1'b1;
          if (&index_q && (&row_q || !all_q)) begin
            state_q <= Idle;
            all_q   <= 1'b0;
          end
        end
        Idle: begin
          row_q   <= AddrWidth'(sad_cfg_valid ? sad_cfg_row : sad_row);
          index_q <= '0;
          if (sad_cfg_valid) begin
            if (sad_cfg_word == WipeWord) state_q <= Wipe;
            else index_q <= IndexWidth'(sad_cfg_word >> 2);
          end else if (sad_ask_valid) begin
            state_q <= Read;
          end
        end
        Read: if (move) begin
          index_q <= index_q + 1'b1;
          if (index_q == IndexWidth'(SaBeats - 1)) state_q <= Idle;
        end
      endcase
    end
  end
  always_ff @(posedge clk_sad_i) begin
    if (state_q == Idle) {unit_q, generation_q} <= {sad_unit, sad_generation};
    word_q <= sad_cfg_word;
    data_q <= sad_cfg_data;
  end

  // A beat's way: out of memory, a register behind it, the FIFO's register, where the sequence number stands instead of
  // word 1. That is written back while the row's last beats are read.
  logic read, stored_valid_q, stored_first_q, held_valid_q, held_first_q, put_first_q, good, good_q;
  logic [3:0][31:0] stored, held_q;
  logic [UnitWidth-1:0] stored_unit_q, held_unit_q;
  logic [31:0] sequence_stored, sequence_held_q, sequence_next;
  sa_t found;
  assign read = state_q == Read && move;

  always_ff @(posedge clk_sad_i or negedge rst_sad_ni) begin
    if (!rst_sad_ni) begin
      stored_valid_q <= 1'b0;
      held_valid_q   <= 1'b0;
      put_valid_q    <= 1'b0;
    end else if (move) begin
      stored_valid_q <= read;
      held_valid_q   <= stored_valid_q;
      put_valid_q    <= held_valid_q;
    end
  end
  always_ff @(posedge clk_sad_i) begin
    if (move) begin
      stored_first_q  <= index_q == '0;
      stored_unit_q   <= unit_q;
      held_first_q    <= stored_first_q;
      held_unit_q     <= stored_unit_q;
      held_q          <= stored;
      sequence_held_q <= sequence_stored;
      put_first_q     <= held_first_q;
      put_q.unit      <= held_unit_q;
      put_q.words     <= held_q;
      if (held_first_q) begin
        put_q.words[63:32] <= sequence_next;
        put_q.sa           <= found;
        good_q             <= good;
      end
    end
  end

  for (genvar b = 0; b < 4; b++) begin : gen_bank
    (* no_rw_check *)
    logic [31:0] mem[Rows*2**IndexWidth];
    always_ff @(posedge clk_sad_i) begin
      if (wipe || (write_q && word_q < Words && word_q[1:0] == 2'(b))) mem[{row_q, index_q}] <= wipe ? '0 : data_q;
      if (read) stored[b] <= mem[{row_q, index_q}];
    end
  end

  // Without an HMAC it is no SA that may be used (RFC 8221, 4), nor with its numbers used up (RFC 4303, 3.3.3). The request is
  // still the same: more beats are read behind the first.
  (* no_rw_check *)
  logic [31:0] sequence_mem[Rows];
  logic take_number;
  assign good          = held_q[1][0] && held_q[1][18:12] == generation_q && unit_e'(held_q[1][10:8]) != UnitPass &&
      sequence_held_q != '1;
  assign sequence_next = sequence_held_q + 1'b1;
  assign take_number   = put_valid_q && put_first_q && put_ready && good_q;
  always_ff @(posedge clk_sad_i) begin
    if (wipe || take_number || (write_q && word_q == SequenceWord)) begin
      sequence_mem[row_q] <= wipe ? '0 : take_number ? put_q.words[63:32] : data_q;
    end
    if (read && index_q == '0) sequence_stored <= sequence_mem[row_q];
  end

  assign found = '{
          encap: good ? UnitMain : UnitNobody, cipher: unit_e'(held_q[1][6:4]), auth: unit_e'(held_q[1][10:8]),
          wide: held_q[1][1]
      };

  logic unused;
  assign unused = &{sad_row, sad_cfg_row};

  if (2 ** AddrWidth != Rows || Rows > 1024) begin : g_rows
    $error("Rows must be a power of two, at most 1024");
  end
endmodule
