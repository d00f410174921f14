// Twofish: one round in a ring of eight cycles, six without LongKeys: h (ace_twofish_h) | PHT and subkeys | the rest.
//
// The S-boxes depend on the key and are computed, so they need no set-up but the products with the RS matrix. The key
// expansion makes a pair of subkeys in two cycles with an h of its own. Those that encryption needs first and those that
// decryption needs first take turns, so both start soon.
module ace_twofish
  import ace_pkg::*, aes_pkg::byte_t, aes_pkg::field_multiply;
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
  localparam int unsigned Rounds = 16;
  localparam int unsigned Pairs = 20;
  localparam int unsigned Stages = stages_of(Twofish, LongKeys);
  localparam int unsigned Depth = Stages - 2;  // of h

  // In this order the pairs of subkeys are made: 0 to 3 are outside the rounds.
  localparam logic [4:0] Order[Pairs] = '{
    5'd0, 5'd1, 5'd4, 5'd2, 5'd3, 5'd19, 5'd5, 5'd18, 5'd6, 5'd17,
    5'd7, 5'd16, 5'd8, 5'd15, 5'd9, 5'd14, 5'd10, 5'd13, 5'd11, 5'd12
  };

  // The product of eight bytes with the RS matrix, in GF(2^8) modulo x^8 + x^6 + x^3 + x^2 + 1.
  localparam logic [63:0] Rs[4] = '{
    64'h01a455875a58db9e, 64'ha45682f31ec668e5, 64'h02a1fcc147ae3d19, 64'ha455875a58db9e03
  };

  function automatic word_t box_word(logic [63:0] part);
    box_word = '0;
    for (int unsigned row = 0; row < 4; row++) begin
      for (int unsigned i = 0; i < 8; i++) begin
        box_word[8*row+:8] ^= field_multiply(part[63-8*i-:8], Rs[row][63-8*i-:8], 8'h4d);
      end
    end
  endfunction

  // Key expansion.
  logic [255:0] key_q, parts_q;
  key_bits_t bits_q;
  logic slot_q, issues_q;
  logic [5:0] step_q;  // the pair's place in Order, and which half
  word_t [1:0][3:0] boxes_q;  // by slot
  logic [2:0] left_q;         // parts of the key that are not multiplied yet

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      issues_q <= 1'b0;
      left_q   <= '0;
    end else if (wipe_i.active) begin
      issues_q <= 1'b0;
      left_q   <= '0;
    end else if (key_i.valid) begin
      issues_q <= 1'b1;
      left_q   <= key_i.bits == 2'd0 ? 3'd2 : key_i.bits == 2'd1 ? 3'd3 : 3'd4;
    end else begin
      if (32'(step_q) == 2 * Pairs - 1) issues_q <= 1'b0;
      if (left_q != '0) left_q <= left_q - 1'b1;
    end
  end
  always_ff @(posedge clk_i) begin
    if (wipe_i.active) begin
      {key_q, parts_q, bits_q, slot_q, step_q, boxes_q} <= '0;
    end else if (key_i.valid) begin
      key_q   <= key_i.key;
      parts_q <= key_i.key;
      bits_q  <= key_i.bits;
      slot_q  <= key_i.slot;
      step_q  <= '0;
    end else begin
      if (issues_q) step_q <= step_q + 1'b1;
      parts_q <= parts_q << 64;
      if (left_q != '0) boxes_q[slot_q] <= {boxes_q[slot_q][2:0], box_word(parts_q[255:192])};
    end
  end

  // What is in each stage of the expansion's h.
  typedef struct packed {
    logic       valid;
    logic       odd;
    logic [4:0] pair;
  } made_t;
  made_t made, made_q[Depth+1];
  word_t made_z, a_q, even_q, odd_q;
  word_t [3:0] made_keys;
  word_t turned_b;
  byte_t number;
  assign made   = '{valid: issues_q, odd: step_q[0], pair: Order[step_q[5:1]]};
  assign number = {2'b0, made.pair, made.odd};
  for (genvar i = 0; i < Depth + 1; i++) begin : g_made
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) made_q[i] <= '0;
      else made_q[i] <= wipe_i.active ? '0 : i == 0 ? made : made_q[i > 0 ? i - 1 : 0];
    end
  end
  for (genvar i = 0; i < 4; i++) begin : g_made_key
    // Word i is needed so many stages behind the first.
    localparam int Behind = int'(LongKeys ? 3 - i : 1 - i);
    logic odd;
    if (Behind <= 0) begin : g_now
      assign odd = made.odd;
    end else begin : g_later
      assign odd = made_q[Behind-1].odd;
    end
    assign made_keys[i] = odd ? key_word(key_q, 2 * i + 1) : key_word(key_q, 2 * i);
  end

  ace_twofish_h #(
    .LongKeys(LongKeys)
  ) u_made (
    .clk_i,
    .x_i({4{number}}),
    .keys_i(made_keys),
    .pass_i({bits_q < 2'd2, bits_q == 2'd0}),
    .z_o(made_z)
  );
  assign turned_b = rol(made_z, 8);
  always_ff @(posedge clk_i) begin
    a_q    <= wipe_i.active ? '0 : made_z;
    even_q <= a_q + turned_b;
    odd_q  <= rol(a_q + (turned_b << 1), 9);
  end

  // Subkeys of the rounds, and those outside of them: row 0 in front of encryption, row 1 behind it.
  (* ram_style = "distributed" *) logic [63:0] inner_q[32], outer_low_q[4], outer_high_q[4];
  made_t ready;
  logic write_inner, write_low, write_high;
  logic [4:0] inner_at;
  logic [1:0] outer_at;
  assign ready       = made_q[Depth];
  assign write_inner = ready.valid && ready.odd && ready.pair >= 5'd4;
  assign write_low   = ready.valid && ready.odd && ready.pair < 5'd4 && !ready.pair[0];
  assign write_high  = ready.valid && ready.odd && ready.pair < 5'd4 && ready.pair[0];
  assign inner_at    = wipe_i.active ? wipe_i.at[4:0] : {slot_q, ready.pair[3:0]};
  assign outer_at    = wipe_i.active ? wipe_i.at[1:0] : {slot_q, ready.pair[1]};
  always_ff @(posedge clk_i) begin
    if (wipe_i.active || write_inner) inner_q[inner_at] <= wipe_i.active ? '0 : {odd_q, even_q};
    if (wipe_i.active || write_low) outer_low_q[outer_at] <= wipe_i.active ? '0 : {odd_q, even_q};
    if (wipe_i.active || write_high) outer_high_q[outer_at] <= wipe_i.active ? '0 : {odd_q, even_q};
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

  // The block in front of each stage.
  words_t state_q[Stages], result;
  logic [1:0] enter_at, leave_at;
  assign enter_at = {entry_i.kind.slot, Decrypts && !entry_i.kind.encrypt};
  assign leave_at = {turn[Stages-1].kind.slot, !Decrypts || turn[Stages-1].kind.encrypt};
  always_ff @(posedge clk_i) begin
    state_q[0] <= goes_on ? result : words_of(entry_i.block) ^ {outer_high_q[enter_at], outer_low_q[enter_at]};
    for (int unsigned i = 1; i < Stages; i++) state_q[i] <= state_q[i-1];
  end

  word_t t0, t1, f0_q, f1_q;
  word_t [3:0] keys;
  logic [1:0] passes;
  for (genvar i = 0; i < 4; i++) begin : g_key
    localparam int unsigned At = LongKeys ? 3 - i : i < 2 ? 1 - i : 0;
    assign keys[i] = boxes_q[turn[At].kind.slot][i];
  end
  assign passes = {turn[0].kind.bits < 2'd2, turn[1].kind.bits == 2'd0};
  ace_twofish_h #(
    .LongKeys(LongKeys)
  ) u_g0 (
    .clk_i,
    .x_i(state_q[0][0]),
    .keys_i(keys),
    .pass_i(passes),
    .z_o(t0)
  );
  ace_twofish_h #(
    .LongKeys(LongKeys)
  ) u_g1 (
    .clk_i,
    .x_i(rol(state_q[0][1], 8)),
    .keys_i(keys),
    .pass_i(passes),
    .z_o(t1)
  );

  // Round r has pair r + 4; row 0 is pair 16.
  logic [63:0] subkeys_q;
  logic [4:0] round_at;
  assign round_at = {
    turn[Stages-3].kind.slot,
    Decrypts && !turn[Stages-3].kind.encrypt ? 4'd3 - turn[Stages-3].pass[3:0] : turn[Stages-3].pass[3:0] + 4'd4
  };
  always_ff @(posedge clk_i) begin
    subkeys_q <= inner_q[round_at];
    f0_q      <= t0 + t1 + subkeys_q[31:0];
    f1_q      <= t0 + (t1 << 1) + subkeys_q[63:32];
  end

  words_t x;
  logic decrypts;
  assign x        = state_q[Stages-1];
  assign decrypts = Decrypts && !turn[Stages-1].kind.encrypt;
  assign result   = {
    x[1],
    x[0],
    decrypts ? rol(x[3] ^ f1_q, 31) : rol(x[3], 1) ^ f1_q,
    decrypts ? rol(x[2], 1) ^ f0_q : rol(x[2] ^ f0_q, 31)
  };
  assign result_o = '{
    valid: leaves,
    slot: turn[Stages-1].kind.slot,
    block: block_of({result[1:0], result[3:2]} ^ {outer_high_q[leave_at], outer_low_q[leave_at]})
  };
endmodule
