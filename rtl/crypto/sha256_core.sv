// SHA-256 compression (FIPS 180-4, 6.2.2), two rounds a cycle: a block of a message every 33 cycles.
//
// The working variables b, c, d and f, g, h are a and e of earlier rounds: a round makes one new a and one new e, and
//   e[t+1] = a[t-3] + e[t-3] + K[t] + W[t] + sum1(e[t]) + ch(e[t], e[t-1], e[t-2])
//   a[t+1] = e[t+1] - a[t-3] + sum0(a[t]) + maj(a[t], a[t-1], a[t-2])
// The e of a round needs no a younger than four rounds, so the a follow two rounds behind. In the cycle of step t / 2
// e[t+1], e[t+2], a[t-1] and a[t] are made, each by one carry chain behind carry-save adders; everything older is
// summed up before. The longest path is two carry chains. One cycle adds the chaining value.
//
// A block is offered as eight pairs of words, fetched during the last rounds of the block before. The block after one
// with last_i starts from state_i, which costs two cycles; after an idle time a block takes ten cycles to enter.
module sha256_core (
  input  logic         clk_i,
  input  logic         rst_ni,
  input  logic         valid_i,  // a whole block can be fetched
  output logic         ready_o,  // it has been
  output logic [  2:0] index_o,  // the pair of words wanted now
  input  logic [ 63:0] words_i,  // the first word in the upper half
  input  logic         last_i,   // the block ends its message
  input  logic [255:0] state_i,  // what a message starts from, while its first block is offered
  output logic         valid_o,  // state_o is a message's hash, in this cycle only
  output logic [255:0] state_o
);
  // Rounds 2 * step and the next; step 32 adds the chaining value. From FirstLoad on the words enter.
  localparam logic [5:0] FirstLoad = 6'd23;
  localparam logic [5:0] LastLoad = 6'd30;
  localparam logic [5:0] LastRounds = 6'd31;

  typedef logic [31:0] word_t;

  // K of two rounds, by step.
  localparam logic [63:0] K[32] = '{
    64'h428a2f98_71374491, 64'hb5c0fbcf_e9b5dba5, 64'h3956c25b_59f111f1, 64'h923f82a4_ab1c5ed5,
    64'hd807aa98_12835b01, 64'h243185be_550c7dc3, 64'h72be5d74_80deb1fe, 64'h9bdc06a7_c19bf174,
    64'he49b69c1_efbe4786, 64'h0fc19dc6_240ca1cc, 64'h2de92c6f_4a7484aa, 64'h5cb0a9dc_76f988da,
    64'h983e5152_a831c66d, 64'hb00327c8_bf597fc7, 64'hc6e00bf3_d5a79147, 64'h06ca6351_14292967,
    64'h27b70a85_2e1b2138, 64'h4d2c6dfc_53380d13, 64'h650a7354_766a0abb, 64'h81c2c92e_92722c85,
    64'ha2bfe8a1_a81a664b, 64'hc24b8b70_c76c51a3, 64'hd192e819_d6990624, 64'hf40e3585_106aa070,
    64'h19a4c116_1e376c08, 64'h2748774c_34b0bcb5, 64'h391c0cb3_4ed8aa4a, 64'h5b9cca4f_682e6ff3,
    64'h748f82ee_78a5636f, 64'h84c87814_8cc70208, 64'h90befffa_a4506ceb, 64'hbef9a3f7_c67178f2  };

  function automatic word_t rotr(word_t x, int unsigned n);
    return (x >> n) | (x << (32 - n));
  endfunction

  function automatic word_t sum0(word_t x);
    return rotr(x, 2) ^ rotr(x, 13) ^ rotr(x, 22);
  endfunction

  function automatic word_t sum1(word_t x);
    return rotr(x, 6) ^ rotr(x, 11) ^ rotr(x, 25);
  endfunction

  function automatic word_t sigma0(word_t x);
    return rotr(x, 7) ^ rotr(x, 18) ^ (x >> 3);
  endfunction

  function automatic word_t sigma1(word_t x);
    return rotr(x, 17) ^ rotr(x, 19) ^ (x >> 10);
  endfunction

  function automatic word_t ch(word_t x, word_t y, word_t z);
    return (x & y) | (~x & z);
  endfunction

  function automatic word_t maj(word_t x, word_t y, word_t z);
    return (x & y) | (x & z) | (y & z);
  endfunction

  // Carry-save, then one carry chain, whatever synthesis makes of longer sums.
  function automatic word_t add3(word_t x, word_t y, word_t z);
    return (x ^ y ^ z) + (maj(x, y, z) << 1);
  endfunction

  function automatic word_t sub3(word_t x, word_t y, word_t z);
    return (x ^ y ^ ~z) + (maj(x, y, ~z) << 1 | 32'd1);
  endfunction

  logic [5:0] step;
  logic busy, last, go, hold, add;
  sha_steps #(
    .FirstLoad(FirstLoad),
    .Hold     (LastRounds),
    .Last     (6'd32)
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
  assign add = step[5];  // the last step: one bit, because it is on the long paths

  // Message schedule: w_q[0] is W of round t + 4. Rounds t + 4 and t + 5 get their K.
  word_t w_q[16];
  word_t w_even, w_odd;
  logic entering;
  logic [4:0] k_index_q;
  word_t kw_even_q, kw_odd_q;
  assign entering = step >= FirstLoad && step <= LastLoad;
  assign w_even = entering ? words_i[63:32] : sigma1(w_q[14]) + w_q[9] + sigma0(w_q[1]) + w_q[0];
  assign w_odd  = entering ? words_i[31:0] : sigma1(w_q[15]) + w_q[10] + sigma0(w_q[2]) + w_q[1];
  always_ff @(posedge clk_i) begin
    if (go && !hold) begin
      for (int unsigned i = 0; i < 14; i++) w_q[i] <= w_q[i+2];
      w_q[14]   <= w_even;
      w_q[15]   <= w_odd;
      kw_even_q <= w_q[0] + K[k_index_q][63:32];
      kw_odd_q  <= w_q[1] + K[k_index_q][31:0];
    end
    // Two steps ahead; step 31 gets the next block's rounds 0 and 1, the adding step its 2 and 3.
    if (go) begin
      if (add) k_index_q <= hold ? 5'd0 : 5'd2;
      else k_index_q <= step >= LastLoad ? 5'(step - LastLoad) : 5'(step + 6'd3);
    end
  end

  // The chaining value.
  word_t h_q[8];
  always_ff @(posedge clk_i) begin
    // Ahead of step 31; after a message's last block it may be for nothing.
    if (busy ? add && last : step == LastLoad) begin
      {h_q[0], h_q[1], h_q[2], h_q[3], h_q[4], h_q[5], h_q[6], h_q[7]} <= state_i;
    end else if (step == '0) begin
      {h_q[0], h_q[1], h_q[2], h_q[3], h_q[4], h_q[5], h_q[6], h_q[7]} <= state_o;
    end
  end

  // e0_q is e[t], e1_q e[t-1] and so on; a2_q is a[t-2], a3_q a[t-3], a4_q a[t-4]; v_q is e[t-1] - a[t-5].
  // Before the first round nothing is missing of the a, so a2_q is a[t] then, v_q a[t-1] and c_q a[t-2].
  word_t e0_q, e1_q, e2_q, e3_q, a2_q, a3_q, a4_q, v_q, c_q;
  logic first_q;
  // a[t-3] + e[t-3] + K[t] + W[t], and e[t-2] + K[t+1] + W[t+1].
  word_t x_q, g_q;
  assign state_o = {a2_q, v_q, c_q, a3_q, e0_q, e1_q, e2_q, e3_q};

  // In the adding step e2 and a2 are the new e[t] and a[t]; the choices lie ahead of the long paths.
  word_t c, e1, e2, a1, a2, x2, d2;
  assign c  = first_q ? c_q : a2_q;
  assign e1 = add3(x_q, sum1(e0_q), ch(e0_q, e1_q, e2_q));
  assign x2 = (add ? e0_q : c) + (add ? h_q[4] : g_q);
  assign e2 = add3(x2, add ? '0 : sum1(e1), add ? '0 : ch(e1, e0_q, e1_q));
  assign a1 = add3(v_q, first_q ? '0 : sum0(a2_q), first_q ? '0 : maj(a2_q, a3_q, a4_q));
  assign d2 = sub3(first_q ? a2_q : e0_q, add ? h_q[0] : '0, first_q ? '0 : a4_q);
  assign a2 = add3(d2, first_q ? '0 : sum0(a1), first_q ? '0 : maj(a1, a2_q, a3_q));

  // The adding step: the next block's first rounds have d and h from here.
  word_t d0, h_kw, v_from, v_term;
  assign d0     = h_q[3] + a3_q;
  assign h_kw   = add3(add ? e3_q : e1_q, kw_even_q, add ? h_q[7] : '0);
  // a1 + h[1] or e1 - a[t-3], which is ~(~e1 + a[t-3]).
  assign v_from = add ? a1 : ~e1;
  assign v_term = add ? h_q[1] : a3_q;

  always_ff @(posedge clk_i) begin
    if (!busy && !add) begin
      // Nothing but the chaining value goes into a message's first block.
      e0_q <= '0;
      e1_q <= '0;
      e2_q <= '0;
      e3_q <= '0;
      a2_q <= '0;
      a3_q <= '0;
      a4_q <= '0;
      v_q  <= '0;
    end else if (go) begin
      e0_q <= e2;
      e1_q <= add ? h_q[5] + e1_q : e1;
      e2_q <= add ? h_q[6] + e2_q : e0_q;
      e3_q <= add ? h_q[7] + e3_q : e1_q;
      a2_q <= a2;
      a3_q <= add ? d0 : a1;
      a4_q <= c;
      v_q  <= {32{!add}} ^ (v_from + v_term);
    end
    if (go) begin
      first_q <= add;
      c_q     <= h_q[2] + a2_q;
      x_q     <= (add ? d0 : a1) + h_kw;
      g_q     <= add3(add ? e2_q : e0_q, kw_odd_q, add ? h_q[6] : '0);
    end
  end
endmodule
