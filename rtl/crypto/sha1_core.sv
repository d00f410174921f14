// SHA-1 compression (FIPS 180-4, 6.1.2), two rounds a cycle: a block of a message every 40 cycles.
//
// Unrolling two rounds as they are written would put four additions behind one another. Here every sum is begun as
// early as its terms are known. With t the round of this cycle, registers hold
//   p = f(b, c, d) + e + K + W  of round t       (so that a' = rotl5(a) + p)
//   q = d + K + W               of round t + 1   (its e is this round's d)
//   e = e + K + W               of round t + 2
//   k = K + W                   of rounds t + 3 and t + 4
// and the longest path is two additions and f, as in a core of one round a cycle. The chaining value is added on the
// way too: each term of it goes into whichever of these sums leads to it, so that no cycle is spent between blocks.
//
// A block is offered as eight pairs of words, fetched during the last rounds of the block before. The block after one
// with last_i starts from state_i, which costs three cycles; after an idle time a block takes ten cycles to enter.
module sha1_core (
  input  logic         clk_i,
  input  logic         rst_ni,
  input  logic         valid_i,  // a whole block can be fetched
  output logic         ready_o,  // it has been
  output logic [  2:0] index_o,  // the pair of words wanted now
  input  logic [ 63:0] words_i,  // the first word in the upper half
  input  logic         last_i,   // the block ends its message
  input  logic [159:0] state_i,  // what a message starts from, while its first block is offered
  output logic         valid_o,  // state_o is a message's hash, in this cycle only
  output logic [159:0] state_o
);
  // Rounds 2 * step and the next. From FirstLoad on the words enter; with Fold the chaining value begins to.
  localparam logic [5:0] FirstLoad = 6'd30;
  localparam logic [5:0] Fold = 6'd37;
  localparam logic [5:0] LastStep = 6'd39;

  typedef logic [31:0] word_t;

  function automatic word_t rotl(word_t x, int unsigned n);
    return (x << n) | (x >> (32 - n));
  endfunction

  // Which quarter of the rounds it is `ahead` steps later. Comparing with constants keeps this off the longest path.
  function automatic logic [1:0] quarter(logic [5:0] step, logic [5:0] ahead);
    if (step < 6'd10 - ahead || step >= 6'd40 - ahead) return 2'd0;
    if (step < 6'd20 - ahead) return 2'd1;
    if (step < 6'd30 - ahead) return 2'd2;
    return 2'd3;
  endfunction

  function automatic word_t f(logic [1:0] kind, word_t x, word_t y, word_t z);
    unique case (kind)
      2'd0: return (x & y) | (~x & z);
      2'd2: return (x & y) | (x & z) | (y & z);
      default: return x ^ y ^ z;
    endcase
  endfunction

  function automatic word_t k(logic [1:0] kind);
    unique case (kind)
      2'd0: return 32'h5a827999;
      2'd1: return 32'h6ed9eba1;
      2'd2: return 32'h8f1bbcdc;
      default: return 32'hca62c1d6;
    endcase
  endfunction

  logic [5:0] step;
  logic busy, last, go, hold;
  sha_steps #(
    .FirstLoad(FirstLoad),
    .Hold     (Fold),
    .Last     (LastStep)
  ) u_steps (
    .clk_i,
    .rst_ni,
    .valid_i,
    .ready_o,
    .index_o,
    .last_i,
    .valid_o,
    .step_o(step),
    .busy_o(busy),
    .last_o(last),
    .go_o  (go),
    .hold_o(hold)
  );

  // Which f this cycle's second round and the next round have, and which K the rounds that enter the sums.
  logic [1:0] second_q, third_q, k_odd_q, k_even_q;
  always_ff @(posedge clk_i) begin
    if (go) begin
      second_q <= quarter(step, 6'd1);
      third_q  <= quarter(step, 6'd2);
      k_odd_q  <= quarter(step, 6'd3);
      k_even_q <= quarter(step, 6'd4);
    end
  end

  // Message schedule: w_q[0] is W of round t + 4.
  word_t w_q[16];
  word_t w_even, w_odd;
  logic entering;
  assign entering = step >= FirstLoad && step <= Fold;
  assign w_even = entering ? words_i[63:32] : rotl(w_q[13] ^ w_q[8] ^ w_q[2] ^ w_q[0], 1);
  assign w_odd  = entering ? words_i[31:0] : rotl(w_q[14] ^ w_q[9] ^ w_q[3] ^ w_q[1], 1);
  always_ff @(posedge clk_i) begin
    if (go && !hold) begin
      for (int unsigned i = 0; i < 14; i++) w_q[i] <= w_q[i+2];
      w_q[14] <= w_even;
      w_q[15] <= w_odd;
    end
  end

  // The chaining value.
  word_t h_q[5];
  word_t a_q, b_q, c_q, d_q, e_q;
  assign state_o = {a_q, b_q, c_q, d_q, e_q};
  always_ff @(posedge clk_i) begin
    // Ahead of Fold; after a message's last block it may be for nothing.
    if (busy ? step == LastStep && last : step == Fold - 6'd1) begin
      {h_q[0], h_q[1], h_q[2], h_q[3], h_q[4]} <= state_i;
    end else if (step == '0) begin
      {h_q[0], h_q[1], h_q[2], h_q[3], h_q[4]} <= state_o;
    end
  end

  // Masked copies, so that adding them costs no logic: h1 a cycle before the last, h2 and h3 in the last.
  word_t h1_q, h2_q, h3_q;
  always_ff @(posedge clk_i) begin
    if (go) begin
      h1_q <= step == Fold ? h_q[1] : '0;
      h2_q <= step == Fold + 6'd1 ? h_q[2] : '0;
      h3_q <= step == Fold + 6'd1 ? h_q[3] : '0;
    end
  end

  // Rounds t + 5 and t + 6 enter the sums. Round 79 takes h0 with it, the next block's round 0 takes h4.
  word_t kw_odd_q, kw_even_q, term_odd, h_odd, h_even;
  assign term_odd = !busy && step == Fold ? '0 : w_q[1] + k(k_odd_q);
  assign h_odd    = step == Fold ? h_q[0] : '0;
  assign h_even   = step == Fold ? h_q[4] : '0;

  word_t p_q, p2_q, q_q, early_q;
  word_t a1, a2, b2, c2, d2, p2;
  assign a1 = rotl(a_q, 5) + p_q;
  assign a2 = rotl(a1, 5) + (f(second_q, a_q, rotl(b_q, 30), c_q) + q_q);
  assign b2 = rotl(a_q, 5) + p2_q;
  assign c2 = rotl(a_q, 30) + h2_q;
  assign d2 = rotl(b_q, 30) + h3_q;
  assign p2 = f(third_q, b2, c2, d2);

  always_ff @(posedge clk_i) begin
    if (go) begin
      kw_odd_q  <= term_odd + h_odd;
      kw_even_q <= w_q[2] + k(k_even_q) + h_even;
      a_q       <= a2;
      b_q       <= b2;
      c_q       <= c2;
      d_q       <= d2;
      e_q       <= c_q + h_q[4];
      p_q       <= p2 + early_q;
      p2_q      <= p2 + (early_q + h1_q);
      q_q       <= d2 + kw_odd_q;
      early_q   <= c2 + kw_even_q;
      // Nothing but the chaining value goes into a message's first block.
      if (!busy && step <= Fold) begin
        a_q     <= '0;
        b_q     <= '0;
        c_q     <= '0;
        p_q     <= '0;
        p2_q    <= '0;
        q_q     <= '0;
        early_q <= '0;
      end
    end
  end
endmodule
