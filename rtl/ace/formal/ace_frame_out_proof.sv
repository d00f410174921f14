// Proof of ace_frame_out: an answer is its status word and exactly so many words as it says, each what was written last at
// its place, the last one marked. Answers leave in order. A word that waits stays as it is until it is taken or cleared.
module ace_frame_out_proof
  import ace_lane_pkg::*;
(
  input logic       clk_i,
  input logic       clear_i,
  input logic [4:0] clear_at_i,
  input logic       write_i,
  input logic [3:0] write_at_i,
  input word_t      word_i,
  input logic       answer_i,
  input answer_t    answer_head_i,
  input logic       ready_i
);
  logic rst_nq = 1'b0;
  always_ff @(posedge clk_i) rst_nq <= 1'b1;

  // The caller writes and answers only where there is room, and no more words than a bank has.
  logic room, write, answers, valid, last, busy;
  word_t data;
  answer_t head;
  assign write   = write_i && room && !clear_i;
  assign answers = answer_i && room && !clear_i;
  assign head    = '{status: answer_head_i.status, bytes: answer_head_i.bytes, words: 14'(answer_head_i.words[3:0])};
  ace_frame_out #(
    .AddrWidth(4)
  ) u_out (
    .clk_i,
    .rst_ni(rst_nq),
    .clear_i,
    .clear_at_i,
    .room_o(room),
    .write_i(write),
    .write_at_i,
    .word_i,
    .answer_i(answers),
    .answer_head_i(head),
    .valid_o(valid),
    .ready_i,
    .data_o(data),
    .last_o(last),
    .busy_o(busy)
  );

  // The place that is followed: any one.
  logic [3:0] place_q;
  always_ff @(posedge clk_i) place_q <= place_q;

  // What is being written, and answers that are there, the older one first.
  logic written_q = 1'b0;
  word_t value_q, value;
  logic written;
  logic [1:0] answers_q = '0;
  logic [1:0] holds_q;
  word_t [1:0] values_q;
  answer_t [1:0] heads_q;
  logic take, gone, at;
  assign written = written_q || (write && write_at_i == place_q);
  assign value   = write && write_at_i == place_q ? word_i : value_q;
  assign take    = valid && ready_i;
  assign gone    = take && last;
  assign at      = answers_q == 2'd1 && !gone;
  always_ff @(posedge clk_i) begin
    if (!rst_nq || clear_i) begin
      answers_q <= '0;
      written_q <= 1'b0;
    end else begin
      answers_q <= answers_q + 2'(answers) - 2'(gone);
      written_q <= written && !answers;
      value_q   <= value;
      if (gone) {holds_q[0], values_q[0], heads_q[0]} <= {holds_q[1], values_q[1], heads_q[1]};
      if (answers) begin
        holds_q[at]  <= written && 14'(place_q) < head.words;
        values_q[at] <= value;
        heads_q[at]  <= head;
      end
    end
  end

  // Words of the older answer that were taken.
  logic [4:0] sent_q = '0;
  always_ff @(posedge clk_i) begin
    if (!rst_nq || clear_i || gone) sent_q <= '0;
    else if (take) sent_q <= sent_q + 1'b1;
  end

  logic waits_q = 1'b0;
  word_t data_q;
  logic last_q;
  always_ff @(posedge clk_i) begin
    waits_q <= rst_nq && valid && !ready_i;
    data_q  <= data;
    last_q  <= last;
  end

  always_ff @(posedge clk_i) begin
    if (rst_nq) begin
      // The handshake.
      if (clear_i) assert (!valid);
      if (waits_q && !clear_i) assert (valid && data == data_q && last == last_q);
      assert (room == (answers_q != 2'd2));
      assert (busy == (answers_q != '0));
      // What leaves.
      if (valid) begin
        assert (answers_q != '0);
        assert (last == (14'(sent_q) == heads_q[0].words));
        if (sent_q == '0) assert (data == {5'b0, heads_q[0].status, 8'b0, heads_q[0].bytes});
        if (sent_q == 5'(place_q) + 1'b1 && holds_q[0]) assert (data == values_q[0]);
      end
      // How it is kept.
      assert (answers_q <= 2'd2);
      assert (u_out.full_q[u_out.read_bank_q] == (answers_q != '0));
      assert (u_out.full_q[!u_out.read_bank_q] == (answers_q == 2'd2));
      assert (u_out.write_bank_q == u_out.read_bank_q ^ answers_q[0]);
      assert (!written_q || u_out.mem[{u_out.write_bank_q, place_q}] == value_q || answers_q == 2'd2);
      if (answers_q == 2'd2) assert (!written_q);
      if (answers_q != '0) begin
        assert (heads_q[0].words < 14'd16 && u_out.heads_q[u_out.read_bank_q] == heads_q[0]);
        if (holds_q[0]) assert (u_out.mem[{u_out.read_bank_q, place_q}] == values_q[0] && 14'(place_q) < heads_q[0].words);
      end
      if (answers_q == 2'd2) begin
        assert (heads_q[1].words < 14'd16 && u_out.heads_q[!u_out.read_bank_q] == heads_q[1]);
        if (holds_q[1]) assert (u_out.mem[{!u_out.read_bank_q, place_q}] == values_q[1] && 14'(place_q) < heads_q[1].words);
      end
      if (!u_out.sending_q) assert (!u_out.valid_q && sent_q == '0);
      else begin
        assert (answers_q != '0 && u_out.valid_q);
        assert (14'(u_out.at_q) + 14'(u_out.left_q) == heads_q[0].words);
        assert (5'(u_out.at_q) == sent_q);
        assert (u_out.status_q == (sent_q == '0));
        assert (u_out.last_q == (u_out.left_q == '0));
        if (sent_q == 5'(place_q) + 1'b1 && holds_q[0]) assert (u_out.word_q == values_q[0]);
      end
      cover (answers_q == 2'd2 && sent_q == 5'd3 && holds_q == 2'b11);
    end
  end
endmodule
