// RC6-32/20/b: one round in a ring of four cycles.
//
//   1 the squares of B and D (18-bit multipliers)
//   2 t and u of them; decrypting, the subkeys are subtracted
//   3 the data-dependent rotations
//   4 the subkeys are added; decrypting, t and u
// Only B and D are squared, and of x (2x + 1) only 32 bits are wanted. So two products of 16 bits make one of them.
//
// The key expansion takes two cycles for each of its 132 mixing steps, all of which depend on the one before. The subkeys
// are final in the third pass over them, so encryption starts in that pass.
module ace_rc6
  import ace_pkg::*;
#(
  parameter bit Decrypts = 1'b1,
  parameter bit LongKeys = 1'b1
) (
  input  logic          clk_i,
  input  logic          rst_ni,
  input  wipe_t         wipe_i,
  input  key_command_t  key_i,
  input  block_entry_t  entry_i,
  output logic          entry_ready_o,
  output block_result_t result_o
);
  localparam int unsigned Rounds = 20;
  localparam int unsigned Stages = stages_of(Rc6, LongKeys);
  localparam int unsigned Subkeys = 2 * Rounds + 4;
  localparam word_t P = 32'hb7e15163;
  localparam word_t Q = 32'h9e3779b9;

  // Key expansion. In an even cycle A and a subkey are made, in the odd one B and a key word. The sum of the former B and
  // the key word is made beside A.
  word_t a_q, b_q, constant_q, old_q, word_sum_q;
  word_t [7:0] words_q;  // of the key, [0] the next
  logic [1:0] pass_q;
  logic [5:0] index_q;
  logic expands_q, odd_q, slot_q;
  logic word_made_q;  // B is a key word, and goes to the others in the next even cycle
  key_bits_t bits_q;
  word_t subkey, word;
  logic [4:0] sum;
  (* ram_style = "distributed" *) word_t work_q[64];  // the subkeys between two passes

  assign subkey = rol(old_q + a_q + b_q, 3);
  assign sum    = a_q[4:0] + b_q[4:0];
  assign word   = turned(word_sum_q + a_q, sum);

  logic ends, last_index;
  logic [5:0] next_index;
  assign last_index = 32'(index_q) == Subkeys - 1;
  assign ends       = odd_q && last_index && pass_q == 2'd2;
  assign next_index = last_index ? '0 : index_q + 1'b1;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) expands_q <= 1'b0;
    else expands_q <= !wipe_i.active && (key_i.valid || (expands_q && !ends));
  end
  always_ff @(posedge clk_i) begin
    if (wipe_i.active) begin
      {a_q, b_q, constant_q, old_q, word_sum_q, words_q, pass_q, index_q, odd_q, slot_q, bits_q, word_made_q} <= '0;
    end else if (key_i.valid) begin
      for (int unsigned i = 0; i < 8; i++) words_q[i] <= key_word(key_i.key, i);
      {a_q, b_q, pass_q, index_q, odd_q, word_made_q} <= '0;
      old_q      <= P;
      constant_q <= P + Q;
      {slot_q, bits_q} <= {key_i.slot, key_i.bits};
    end else if (expands_q) begin
      odd_q <= !odd_q;
      if (!odd_q) begin
        a_q        <= subkey;
        word_sum_q <= words_q[0] + b_q;
        if (word_made_q) begin
          if (bits_q == 2'd0) words_q[3] <= b_q;
          else if (bits_q == 2'd1) words_q[5] <= b_q;
          else words_q[7] <= b_q;
        end
      end else begin
        // The first pass begins with constants.
        old_q      <= pass_q == '0 && !last_index ? constant_q : work_q[next_index];
        constant_q <= constant_q + Q;
        b_q        <= word;
        words_q    <= {32'b0, words_q[7:1]};
        index_q    <= next_index;
        word_made_q <= 1'b1;
        if (last_index) pass_q <= pass_q + 1'b1;
      end
    end
  end

  // A is the subkey that was made in the cycle before.
  logic made;
  assign made = expands_q && odd_q;
  always_ff @(posedge clk_i) begin
    if (wipe_i.active || made) work_q[wipe_i.active ? wipe_i.at : index_q] <= wipe_i.active ? '0 : a_q;
  end

  // Subkeys of the rounds in pairs; the two in front of the rounds and the two behind them lie apart.
  // Row 0 of outer is in front of encryption.
  (* ram_style = "distributed" *) word_t even_q[64], odd_keys_q[64];
  (* ram_style = "distributed" *) word_t outer_even_q[4], outer_odd_q[4];
  logic outer, final_pass;
  logic [4:0] pair;
  logic [5:0] write_at;
  logic [1:0] outer_at;
  assign pair       = index_q[5:1];
  assign final_pass = made && pass_q == 2'd2;
  assign outer      = pair == '0 || 32'(pair) == Rounds + 1;
  assign write_at   = wipe_i.active ? wipe_i.at : {slot_q, pair};
  assign outer_at   = wipe_i.active ? wipe_i.at[1:0] : {slot_q, pair != '0};
  always_ff @(posedge clk_i) begin
    if (wipe_i.active || (final_pass && !outer && !index_q[0])) even_q[write_at] <= wipe_i.active ? '0 : a_q;
    if (wipe_i.active || (final_pass && !outer && index_q[0])) odd_keys_q[write_at] <= wipe_i.active ? '0 : a_q;
    if (wipe_i.active || (final_pass && outer && !index_q[0])) outer_even_q[outer_at] <= wipe_i.active ? '0 : a_q;
    if (wipe_i.active || (final_pass && outer && index_q[0])) outer_odd_q[outer_at] <= wipe_i.active ? '0 : a_q;
  end

  turn_t turn[Stages];
  logic leaves, goes_on;
  ace_ring #(
    .Stages(Stages),
    .Passes('{Rounds, Rounds, Rounds})
  ) u_ring (
    .clk_i,
    .rst_ni,
    .clear_i(wipe_i.active),
    .valid_i(entry_i.valid),
    .ready_o(entry_ready_o),
    .kind_i(entry_i.kind),
    .turn_o(turn),
    .leave_o(leaves)
  );
  assign goes_on = turn[Stages-1].valid && !turn[Stages-1].last;

  // Encrypting, a round ends with (A, B, C, D) = (B, C, D, A); decrypting, it begins with (A, B, C, D) = (D, A, B, C).
  // In front of the rounds B and D, or A and C, get the outer subkeys.
  words_t entering, start_q, in, result, left;
  logic decrypt;
  word_t enter_even, enter_odd, leave_even, leave_odd;
  assign decrypt    = Decrypts && !entry_i.kind.encrypt;
  assign enter_even = outer_even_q[{entry_i.kind.slot, decrypt}];
  assign enter_odd  = outer_odd_q[{entry_i.kind.slot, decrypt}];
  assign in         = words_of(entry_i.block);
  assign entering   = decrypt ? {in[2] - enter_odd, in[1], in[0] - enter_even, in[3]} :
      {in[3] + enter_odd, in[2], in[1] + enter_even, in[0]};
  always_ff @(posedge clk_i) start_q <= goes_on ? result : entering;

  // Stage 1. x (2x + 1) = 2 l l + 4 l h 2^16 + x modulo 2^32, with h and l the halves of x.
  word_t [1:0] low_q, cross_q;
  words_t one_q;
  word_t even1_q, odd1_q;
  logic [5:0] key_at;  // pairs 1 to 20
  assign key_at = {
    turn[0].kind.slot, Decrypts && !turn[0].kind.encrypt ? 5'(Rounds) - turn[0].pass : turn[0].pass + 1'b1
  };
  always_ff @(posedge clk_i) begin
    for (int unsigned i = 0; i < 2; i++) begin
      low_q[i]   <= 32'(start_q[2*i+1][15:0]) * 32'(start_q[2*i+1][15:0]);
      cross_q[i] <= 32'(start_q[2*i+1][15:0]) * 32'(start_q[2*i+1][31:16]);
    end
    one_q   <= start_q;
    even1_q <= even_q[key_at];
    odd1_q  <= odd_keys_q[key_at];
  end

  // Stage 2.
  logic decrypt2, decrypt3, decrypt4;
  assign decrypt2 = Decrypts && !turn[1].kind.encrypt;
  assign decrypt3 = Decrypts && !turn[2].kind.encrypt;
  assign decrypt4 = Decrypts && !turn[3].kind.encrypt;
  word_t t_q, u_q, even2_q, odd2_q;
  words_t two_q;
  always_ff @(posedge clk_i) begin
    t_q      <= rol((low_q[0] << 1) + (cross_q[0] << 18) + one_q[1], 5);
    u_q      <= rol((low_q[1] << 1) + (cross_q[1] << 18) + one_q[3], 5);
    two_q    <= one_q;
    two_q[0] <= decrypt2 ? one_q[0] - even1_q : one_q[0];
    two_q[2] <= decrypt2 ? one_q[2] - odd1_q : one_q[2];
    even2_q  <= even1_q;
    odd2_q   <= odd1_q;
  end

  // Stage 3: to the right by n is to the left by -n.
  word_t t3_q, u3_q, even3_q, odd3_q;
  words_t three_q;
  always_ff @(posedge clk_i) begin
    three_q    <= two_q;
    three_q[0] <= turned(decrypt3 ? two_q[0] : two_q[0] ^ t_q, decrypt3 ? -u_q[4:0] : u_q[4:0]);
    three_q[2] <= turned(decrypt3 ? two_q[2] : two_q[2] ^ u_q, decrypt3 ? -t_q[4:0] : t_q[4:0]);
    t3_q       <= t_q;
    u3_q       <= u_q;
    even3_q    <= even2_q;
    odd3_q     <= odd2_q;
  end

  // Stage 4.
  words_t ended;
  assign ended  = {
    three_q[3],
    decrypt4 ? three_q[2] ^ u3_q : three_q[2] + odd3_q,
    three_q[1],
    decrypt4 ? three_q[0] ^ t3_q : three_q[0] + even3_q
  };
  assign result = decrypt4 ? {ended[2:0], ended[3]} : {ended[0], ended[3:1]};

  // Behind the rounds.
  words_t out_q;
  logic out_valid_q, out_slot_q, out_decrypt_q;
  always_ff @(posedge clk_i) begin
    out_q         <= decrypt4 ? ended : result;
    out_slot_q    <= turn[Stages-1].kind.slot;
    out_decrypt_q <= decrypt4;
  end
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) out_valid_q <= 1'b0;
    else out_valid_q <= leaves && !wipe_i.active;
  end
  assign leave_even = outer_even_q[{out_slot_q, !out_decrypt_q}];
  assign leave_odd  = outer_odd_q[{out_slot_q, !out_decrypt_q}];
  assign left       = out_decrypt_q ? {out_q[3] - leave_odd, out_q[2], out_q[1] - leave_even, out_q[0]} :
      {out_q[3], out_q[2] + leave_odd, out_q[1], out_q[0] + leave_even};
  assign result_o   = '{valid: out_valid_q, slot: out_slot_q, block: block_of(left)};
endmodule
