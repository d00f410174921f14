// Answers of ace_lane as frames of 32-bit words: a status word, then so many words of the body as the answer has.
//
// There is room for two answers. The body's words are written first, in any order; the answer is sent once it is
// complete. clear_i drops and overwrites all.
module ace_frame_out
  import ace_lane_pkg::*;
#(
  parameter int unsigned AddrWidth = 9  // of a body's words
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 clear_i,
  input  logic [AddrWidth:0]   clear_at_i,
  output logic                 room_o,      // for an answer
  input  logic                 write_i,
  input  logic [AddrWidth-1:0] write_at_i,
  input  word_t                word_i,
  input  logic                 answer_i,    // it is complete
  input  answer_t              answer_head_i,
  output logic                 valid_o,
  input  logic                 ready_i,
  output word_t                data_o,
  output logic                 last_o,
  output logic                 busy_o
);
  typedef logic [AddrWidth-1:0] addr_t;

  logic write_bank_q, read_bank_q;
  logic [1:0] full_q;
  answer_t heads_q[2], head;
  assign room_o = !full_q[write_bank_q];
  assign head   = heads_q[read_bank_q];

  // What is at the output: the status word, or a word of the body.
  logic valid_q, status_q, last_q, sending_q;
  addr_t at_q, left_q;  // of words that are still to be read
  logic begins, reads, ends, free;
  assign free   = !valid_q || ready_i;
  assign begins = !sending_q && full_q[read_bank_q];
  assign reads  = sending_q && free && left_q != '0;
  assign ends   = valid_q && last_q && ready_i;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      {write_bank_q, read_bank_q, full_q} <= '0;
      {valid_q, sending_q} <= '0;
    end else if (clear_i) begin
      {write_bank_q, read_bank_q, full_q} <= '0;
      {valid_q, sending_q} <= '0;
    end else begin
      if (answer_i) begin
        full_q[write_bank_q] <= 1'b1;
        write_bank_q         <= !write_bank_q;
      end
      if (ends) begin
        full_q[read_bank_q] <= 1'b0;
        read_bank_q         <= !read_bank_q;
      end
      valid_q   <= begins || reads || !free;
      sending_q <= begins || (sending_q && !ends);
    end
  end

  always_ff @(posedge clk_i) begin
    if (clear_i) begin
      {status_q, last_q, at_q, left_q} <= '0;
      for (int unsigned i = 0; i < 2; i++) heads_q[i] <= '0;
    end else begin
      if (answer_i) heads_q[write_bank_q] <= answer_head_i;
      if (begins) begin
        status_q <= 1'b1;
        last_q   <= head.words == '0;
        left_q   <= addr_t'(head.words);
        at_q     <= '0;
      end else if (reads) begin
        status_q <= 1'b0;
        last_q   <= left_q == addr_t'(1);
        left_q   <= left_q - 1'b1;
        at_q     <= at_q + 1'b1;
      end
    end
  end

  // A word is never read in the cycle in which it is written.
  (* no_rw_check *)
  word_t mem[2 << AddrWidth];
  word_t word_q;
  always_ff @(posedge clk_i) begin
    if (clear_i || write_i) mem[clear_i ? clear_at_i : {write_bank_q, write_at_i}] <= clear_i ? '0 : word_i;
    if (clear_i || reads) word_q <= mem[{read_bank_q, at_q}];
  end

  assign valid_o = valid_q && !clear_i;
  assign data_o  = status_q ? {5'b0, head.status, 8'b0, head.bytes} : word_q;
  assign last_o  = last_q;
  assign busy_o  = full_q != '0;
endmodule
