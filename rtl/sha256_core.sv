// SHA-256 compression (FIPS 180-4, 6.2.2), two rounds a cycle: a block of a message every 33 cycles.
//
// What a round adds to its working variables without knowing them is summed up two rounds before: with t the round of
// this cycle, registers hold g = h + K + W and x = d + g, of rounds t and t + 1. Sums of more than two terms become
// carry-save adders and one carry chain, so two chains lie behind one another. One cycle adds the chaining value.
//
// A block is offered as eight pairs of words, fetched during the last rounds of the block before. The block after one
// with last_i starts from state_i, which costs one cycle; after an idle time a block takes ten cycles to enter.
// The handshakes are those of sha1_core.
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
  // Rounds 2 * step and the next, then one step that adds. From FirstLoad on the words enter.
  localparam logic [5:0] FirstLoad = 6'd23;
  localparam logic [5:0] LastLoad = 6'd30;
  localparam logic [5:0] LastRounds = 6'd31;
  localparam logic [5:0] AddStep = 6'd32;

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

  // Control.
  logic [5:0] step_q, step_d;
  logic busy_q, busy_d;  // the rounds are a block's; else only words and chaining value enter
  logic load_q, load;    // a block is entering
  logic last_q, next_last_q;
  logic fresh;           // the block that enters starts a message
  logic go, hold, first_load, add;

  assign first_load = step_q == FirstLoad;
  assign load       = first_load ? valid_i : load_q;
  assign fresh      = !busy_q || last_q;
  assign add        = step_q == AddStep;
  // Waits for the next block of a message, or for any.
  assign go         = !first_load || valid_i || (busy_q && last_q);
  // A fresh block waits before its adding step until the block before has had its own.
  assign hold       = busy_q && fresh && add;
  assign ready_o    = load && (busy_q && fresh ? add : step_q == LastRounds);
  assign index_o    = 3'(step_q - FirstLoad);

  always_comb begin
    step_d = step_q + 6'd1;
    busy_d = busy_q;
    if (add) begin
      step_d = !load ? FirstLoad : hold ? AddStep : '0;
      busy_d = load && !hold;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      step_q  <= FirstLoad;
      busy_q  <= 1'b0;
      load_q  <= 1'b0;
      valid_o <= 1'b0;
    end else begin
      valid_o <= add && busy_q && last_q;
      if (go) begin
        step_q <= step_d;
        busy_q <= busy_d;
        load_q <= load && !(add && !hold);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (ready_o) next_last_q <= last_i;
    if (go && busy_d && step_d == '0) last_q <= next_last_q;
  end

  // Message schedule: w_q[0] is W of round t + 4. Rounds t + 4 and t + 5 get their K.
  word_t w_q[16];
  word_t w_even, w_odd;
  logic entering;
  logic [4:0] k_index_q;
  word_t kw_even_q, kw_odd_q;
  assign entering = step_q >= FirstLoad && step_q <= LastLoad;
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
    if (go) k_index_q <= step_d >= LastRounds ? 5'(step_d - LastRounds) : 5'(step_d + 6'd2);
  end

  // The chaining value.
  word_t h_q[8];
  word_t a_q, b_q, c_q, d_q, e_q, f_q, g_q, hh_q;
  assign state_o = {a_q, b_q, c_q, d_q, e_q, f_q, g_q, hh_q};
  always_ff @(posedge clk_i) begin
    if (ready_o && fresh) {h_q[0], h_q[1], h_q[2], h_q[3], h_q[4], h_q[5], h_q[6], h_q[7]} <= state_i;
    else if (step_q == '0) {h_q[0], h_q[1], h_q[2], h_q[3], h_q[4], h_q[5], h_q[6], h_q[7]} <= state_o;
  end

  // g and x of this cycle's two rounds.
  word_t g_even_q, g_odd_q, x_even_q, x_odd_q;
  word_t u1, u2, e1, e2, a1, a2;
  assign u1 = sum1(e_q) + ch(e_q, f_q, g_q);
  assign e1 = x_even_q + u1;
  assign a1 = g_even_q + u1 + sum0(a_q) + maj(a_q, b_q, c_q);
  assign u2 = sum1(e1) + ch(e1, e_q, f_q);
  assign e2 = x_odd_q + u2;
  assign a2 = g_odd_q + u2 + sum0(a1) + maj(a1, a_q, b_q);

  // The adding step; a message's first block has only the chaining value to begin with.
  word_t sum[8];
  always_comb begin
    sum[0] = h_q[0] + (busy_q ? a_q : '0);
    sum[1] = h_q[1] + (busy_q ? b_q : '0);
    sum[2] = h_q[2] + (busy_q ? c_q : '0);
    sum[3] = h_q[3] + (busy_q ? d_q : '0);
    sum[4] = h_q[4] + (busy_q ? e_q : '0);
    sum[5] = h_q[5] + (busy_q ? f_q : '0);
    sum[6] = h_q[6] + (busy_q ? g_q : '0);
    sum[7] = h_q[7] + (busy_q ? hh_q : '0);
  end

  // What are d, h and c, g of the next two rounds.
  word_t next_h_even, next_h_odd, next_d_even, next_d_odd;
  assign next_d_even = add ? sum[3] : b_q;
  assign next_h_even = add ? sum[7] : f_q;
  assign next_d_odd  = add ? sum[2] : a_q;
  assign next_h_odd  = add ? sum[6] : e_q;

  always_ff @(posedge clk_i) begin
    if (go) begin
      a_q      <= add ? sum[0] : a2;
      b_q      <= add ? sum[1] : a1;
      c_q      <= add ? sum[2] : a_q;
      d_q      <= add ? sum[3] : b_q;
      e_q      <= add ? sum[4] : e2;
      f_q      <= add ? sum[5] : e1;
      g_q      <= add ? sum[6] : e_q;
      hh_q     <= add ? sum[7] : f_q;
      g_even_q <= next_h_even + kw_even_q;
      g_odd_q  <= next_h_odd + kw_odd_q;
      x_even_q <= next_d_even + next_h_even + kw_even_q;
      x_odd_q  <= next_d_odd + next_h_odd + kw_odd_q;
    end
  end
endmodule
