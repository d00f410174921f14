// Proof of ace_frame_in: a frame counts exactly if it ends where its first word says, one word of it is followed into the
// memory and out of it, and words are refused only while two frames are inside or all is cleared. What follows a frame
// that was cut off is dropped up to its end.
module ace_frame_in_proof
  import ace_lane_pkg::*;
(
  input logic       clk_i,
  input logic       clear_i,
  input logic [5:0] clear_at_i,
  input logic       valid_i,
  input word_t      data_i,
  input logic       last_i,
  input logic       done_i,
  input logic       read_i,
  input logic [4:0] read_at_i
);
  localparam int unsigned BodyWords = 16;

  // The lane clears all after reset.
  logic rst_nq = 1'b0;
  logic begun_q = 1'b0;
  logic clear;
  assign clear = clear_i || !begun_q;
  always_ff @(posedge clk_i) begin
    rst_nq  <= 1'b1;
    begun_q <= rst_nq;
  end

  logic ready, frame_valid, malformed, busy, take, done;
  word_t word;
  assign take = valid_i && ready;
  assign done = done_i && frame_valid && !clear;
  ace_frame_in #(
    .BodyWords(BodyWords),
    .LongKeys(1'b1),
    .AddrWidth(5)
  ) u_in (
    .clk_i,
    .rst_ni(rst_nq),
    .clear_i(clear),
    .clear_at_i,
    .valid_i,
    .ready_o(ready),
    .data_i,
    .last_i,
    .frame_valid_o(frame_valid),
    .frame_malformed_o(malformed),
    .frame_done_i(done),
    .read_i,
    .read_at_i,
    .word_o(word),
    .busy_o(busy)
  );

  // The place that is followed: any one.
  logic [4:0] place_q;
  always_ff @(posedge clk_i) place_q <= place_q;

  // The frame that is coming: words so far (no more than 63 are counted), its first one and the one that is followed.
  logic [5:0] count_q = '0;
  logic cut_q = 1'b0;  // what comes is the rest of a frame that was cut off
  word_t first_q, value_q;
  word_t first, value;
  head_t head;
  logic good;
  assign first = count_q == '0 ? data_i : first_q;
  assign value = count_q == {1'b0, place_q} ? data_i : value_q;
  assign head  = head_of(first, BodyWords, 1'b1);
  assign good  = head.good && 15'(count_q) == head.last_word;
  always_ff @(posedge clk_i) begin
    if (!rst_nq) begin
      count_q <= '0;
      cut_q   <= 1'b0;
    end else if (clear) begin
      count_q <= '0;
      cut_q   <= cut_q || count_q != '0;
    end else if (take) begin
      if (cut_q) begin
        cut_q <= !last_i;
      end else begin
        count_q <= last_i ? '0 : count_q == '1 ? '1 : count_q + 1'b1;
        first_q <= first;
        value_q <= value;
      end
    end
  end

  // Frames that are there, the older one first.
  logic [1:0] frames_q = '0;
  logic [1:0] good_q, holds_q;
  word_t [1:0] values_q;
  logic ends, at;
  assign ends = take && last_i && !cut_q && !clear;
  assign at   = frames_q == 2'd1 && !done;
  always_ff @(posedge clk_i) begin
    if (!rst_nq || clear) begin
      frames_q <= '0;
    end else begin
      frames_q <= frames_q + 2'(ends) - 2'(done);
      if (done) {good_q[0], holds_q[0], values_q[0]} <= {good_q[1], holds_q[1], values_q[1]};
      if (ends) begin
        good_q[at]   <= good;
        holds_q[at]  <= good && 15'(place_q) <= head.last_word;
        values_q[at] <= value;
      end
    end
  end

  logic read_q = 1'b0;
  word_t due_q;
  always_ff @(posedge clk_i) begin
    read_q <= rst_nq && !clear && read_i && read_at_i == place_q && frames_q != '0 && holds_q[0];
    due_q  <= values_q[0];
  end

  always_ff @(posedge clk_i) begin
    if (rst_nq) begin
      // The handshake.
      assert (ready == (!clear && (cut_q || frames_q != 2'd2)));
      assert (busy == (count_q != '0 || cut_q || frames_q != '0));
      // What is there.
      assert (frames_q <= 2'd2);
      assert (frame_valid == (frames_q != '0));
      if (frame_valid) assert (malformed == !good_q[0]);
      if (read_q) assert (word == due_q);
      // How it is kept.
      assert (cut_q == u_in.drop_q);
      assert (!cut_q || count_q == '0);
      assert (u_in.inside_q == (count_q != '0));
      if (count_q == '0) assert (u_in.at_q == '0);
      else begin
        assert (u_in.wrong_q == !(head_of(first_q, BodyWords, 1'b1).good && 15'(count_q) <= head_of(first_q, BodyWords, 1'b1).last_word));
        if (!u_in.wrong_q) begin
          assert (u_in.at_q == 5'(count_q));
          assert (15'(u_in.end_q) == head_of(first_q, BodyWords, 1'b1).last_word);
          if (count_q > {1'b0, place_q}) assert (u_in.mem[{u_in.write_bank_q, place_q}] == value_q);
        end
        // A word that is past the end makes the frame wrong before it is counted out.
        if (head_of(first_q, BodyWords, 1'b1).good && u_in.wrong_q) assert (15'(count_q) > head_of(first_q, BodyWords, 1'b1).last_word);
      end
      assert (u_in.full_q[u_in.read_bank_q] == (frames_q != '0));
      assert (u_in.full_q[!u_in.read_bank_q] == (frames_q == 2'd2));
      assert (u_in.write_bank_q == u_in.read_bank_q ^ frames_q[0]);
      if (frames_q != '0) begin
        assert (u_in.malformed_q[u_in.read_bank_q] == !good_q[0]);
        if (holds_q[0]) assert (u_in.mem[{u_in.read_bank_q, place_q}] == values_q[0]);
      end
      if (frames_q == 2'd2) begin
        assert (u_in.malformed_q[!u_in.read_bank_q] == !good_q[1]);
        if (holds_q[1]) assert (u_in.mem[{!u_in.read_bank_q, place_q}] == values_q[1]);
      end
      cover (frames_q == 2'd2 && good_q == 2'b11 && holds_q == 2'b11 && place_q == 5'd5);
      cover (cut_q && take && last_i);
    end
  end
endmodule
