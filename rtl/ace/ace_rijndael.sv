// Rijndael with blocks of 128 bits (FIPS 197, AES): Unroll rounds in a ring, two cycles each.
//
// A round is SubBytes | the rest. The key expansion makes two words a cycle, which is a round key in the two cycles that a
// round takes. So encryption starts two cycles after the key, and decryption, whose first round key is the last one, when
// all are made. With Decrypts the S-boxes are an inverse in GF(2^8) with the affine map in front or behind.
module ace_rijndael
  import aes_pkg::*, ace_pkg::*;
#(
  parameter bit          Decrypts = 1'b1,
  parameter bit          LongKeys = 1'b1,
  parameter int unsigned Unroll = 2  // 2, or without Decrypts and LongKeys 10
) (
  input  logic          clk_i,
  input  logic          rst_ni,
  input  wipe_t         wipe_i,
  input  key_command_t  key_i,
  input  block_entry_t  entry_i,
  output logic          entry_ready_o,
  output block_result_t result_o
);
  localparam int unsigned Stages = 2 * Unroll;
  localparam int unsigned Passes[3] = '{10 / Unroll, (LongKeys ? 12 : 10) / Unroll, (LongKeys ? 14 : 10) / Unroll};
  localparam int unsigned Pairs = 2 * ((LongKeys ? 14 : 10) + 1);  // of words of the longest schedule

  typedef logic [63:0] pair_t;

  function automatic int unsigned rounds(key_bits_t bits);
    return !LongKeys || bits == 2'd0 ? 10 : bits == 2'd1 ? 12 : 14;
  endfunction

  // Key expansion: the oldest words of the window leave and become round keys, new ones come in behind the key's length.
  logic [7:0][31:0] window_q, window_d;  // [7] is the oldest word
  key_bits_t bits_q;
  logic slot_q, expands_q;
  logic [$clog2(Pairs)-1:0] pair_q;  // of words, counted from the first
  logic [1:0] phase_q;               // pair_q modulo the pairs of the key
  byte_t rcon_q;
  logic [31:0] last, substituted, added, new0, new1;
  logic rotates, substitutes;

  assign last        = bits_q == 2'd0 ? window_q[4] : bits_q == 2'd1 ? window_q[2] : window_q[0];
  assign rotates     = phase_q == 2'd0;
  assign substitutes = rotates || (bits_q >= 2'd2 && phase_q == 2'd2);
  for (genvar i = 0; i < 4; i++) begin : g_substituted
    assign substituted[8*i+:8] = Sbox[last[8*i+:8]];
  end
  assign added = rotates ? {substituted[23:0], substituted[31:24]} ^ {rcon_q, 24'b0} : substitutes ? substituted : last;
  assign new0  = window_q[7] ^ added;
  assign new1  = window_q[6] ^ new0;
  always_comb begin
    window_d = {window_q[5:0], 64'b0};
    if (bits_q == 2'd0) window_d[5:4] = {new0, new1};
    else if (bits_q == 2'd1) window_d[3:2] = {new0, new1};
    else window_d[1:0] = {new0, new1};
  end

  logic ends, wraps;
  assign ends  = 32'(pair_q) == 2 * rounds(bits_q) + 1;
  assign wraps = phase_q == (bits_q == 2'd0 ? 2'd1 : bits_q == 2'd1 ? 2'd2 : 2'd3);
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) expands_q <= 1'b0;
    else expands_q <= !wipe_i.active && (key_i.valid || (expands_q && !ends));
  end
  always_ff @(posedge clk_i) begin
    if (wipe_i.active) begin
      {window_q, bits_q, slot_q, pair_q, phase_q, rcon_q} <= '0;
    end else if (key_i.valid) begin
      window_q <= key_i.key;
      bits_q   <= key_i.bits;
      slot_q   <= key_i.slot;
      pair_q   <= '0;
      phase_q  <= '0;
      rcon_q   <= 8'd1;
    end else if (expands_q) begin
      window_q <= window_d;
      pair_q   <= pair_q + 1'b1;
      phase_q  <= wraps ? '0 : phase_q + 1'b1;
      if (rotates) rcon_q <= xtime(rcon_q);
    end
  end

  // Round keys. Bank g has those of the rounds that pass stage pair g, in two halves, because they are made so.
  // The first key of both directions lies apart, because a block may enter while others go round.
  pair_t pair;
  logic [$clog2(Pairs)-2:0] made;  // number of the round key that a half is made of
  logic high;
  assign pair = window_q[7:6];
  assign {made, high} = {pair_q[$clog2(Pairs)-1:1], !pair_q[0]};

  localparam int unsigned Rows = ((LongKeys ? 14 : 10) + Unroll - 1) / Unroll + 1;
  localparam int unsigned RowWidth = $clog2(Rows);
  typedef logic [RowWidth-1:0] row_t;
  function automatic row_t row_of(int unsigned round);
    return RowWidth'((round + Unroll - 1) / Unroll);
  endfunction

  turn_t turn[Stages];
  logic leaves;
  block_t state[Stages+1];
  block_t state_q;
  for (genvar g = 0; g < Unroll; g++) begin : g_round
    (* ram_style = "distributed" *) pair_t high_q[2<<RowWidth];
    (* ram_style = "distributed" *) pair_t low_q[2<<RowWidth];
    logic mine;
    logic [RowWidth:0] write_at, read_at;
    assign mine     = expands_q && (32'(made) + Unroll - 1) % Unroll == g;
    assign write_at = wipe_i.active ? (RowWidth + 1)'(wipe_i.at) : {slot_q, row_of(32'(made))};
    always_ff @(posedge clk_i) begin
      if (wipe_i.active || (mine && high)) high_q[write_at] <= wipe_i.active ? '0 : pair;
      if (wipe_i.active || (mine && !high)) low_q[write_at] <= wipe_i.active ? '0 : pair;
    end

    // SubBytes, and the round key is fetched.
    block_t key_q;
    bytes_t sub_q, sub;
    int unsigned index;
    assign index = 32'(turn[2*g].pass) * Unroll + g;  // of the round in its direction
    assign read_at = {
      turn[2*g].kind.slot,
      row_of(!Decrypts || turn[2*g].kind.encrypt ? index + 1 : rounds(turn[2*g].kind.bits) - 1 - index)
    };
    always_ff @(posedge clk_i) begin
      sub_q <= substitute(state[2*g], turn[2*g].kind.encrypt);
      key_q <= {high_q[read_at], low_q[read_at]};
    end
    assign state[2*g+1] = sub_q;

    // The rest of it.
    logic encrypts, final_round;
    bytes_t inner;
    block_t mixed, result;
    assign encrypts    = !Decrypts || turn[2*g+1].kind.encrypt;
    assign final_round = turn[2*g+1].last && g == Unroll - 1;
    assign sub         = affine_behind(sub_q, encrypts);
    assign inner       = encrypts ? shift_rows(sub) : unshift_rows(sub) ^ key_q;
    assign mixed       = final_round ? inner : mix_columns(encrypts ? inner : prepare(inner));
    assign result      = encrypts ? mixed ^ key_q : mixed;
    if (g < Unroll - 1) begin : g_next
      block_t next_q;
      always_ff @(posedge clk_i) next_q <= result;
      assign state[2*g+2] = next_q;
    end else begin : g_last
      assign state[2*g+2] = result;
    end
  end

  (* ram_style = "distributed" *) pair_t first_high_q[4], first_low_q[4];
  logic first_key;
  logic [1:0] first_at, enter_at;
  assign first_key = expands_q && (made == '0 || 32'(made) == rounds(bits_q));
  assign first_at  = wipe_i.active ? wipe_i.at[1:0] : {slot_q, made == '0};
  assign enter_at  = {entry_i.kind.slot, !Decrypts || entry_i.kind.encrypt};
  always_ff @(posedge clk_i) begin
    if (wipe_i.active || (first_key && high)) first_high_q[first_at] <= wipe_i.active ? '0 : pair;
    if (wipe_i.active || (first_key && !high)) first_low_q[first_at] <= wipe_i.active ? '0 : pair;
  end

  ace_ring #(
    .Stages(Stages),
    .Passes(Passes)
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

  always_ff @(posedge clk_i) begin
    if (turn[Stages-1].valid && !turn[Stages-1].last) state_q <= state[Stages];
    else state_q <= entry_i.block ^ {first_high_q[enter_at], first_low_q[enter_at]};
  end
  assign state[0] = state_q;
  assign result_o = '{valid: leaves, slot: turn[Stages-1].kind.slot, block: state[Stages]};

  // S-box tables of both directions; with Decrypts one of the inverse, and the affine map is made apart.
  function automatic table_t make_inverse();
    for (int unsigned i = 0; i < 256; i++) make_inverse[i] = unaffine(Sbox[i]);
  endfunction
  localparam table_t Inverse = make_inverse();

  function automatic byte_t unaffine(byte_t a);
    return {a[6:0], a[7]} ^ {a[4:0], a[7:5]} ^ {a[1:0], a[7:2]} ^ 8'h05;
  endfunction

  function automatic bytes_t substitute(bytes_t in, logic encrypt);
    for (int unsigned i = 0; i < 16; i++) begin
      substitute[i] = Decrypts ? Inverse[encrypt ? in[i] : unaffine(in[i])] : Sbox[in[i]];
    end
  endfunction

  function automatic bytes_t affine_behind(bytes_t in, logic encrypt);
    for (int unsigned i = 0; i < 16; i++) affine_behind[i] = Decrypts && encrypt ? affine(in[i]) : in[i];
  endfunction

  function automatic bytes_t unshift_rows(bytes_t in);
    for (int unsigned i = 0; i < 16; i++) unshift_rows[15-(5*i)%16] = in[15-i];
  endfunction

  // InvMixColumns is MixColumns of a column to which 4 times the sum of every other row was added.
  function automatic bytes_t prepare(bytes_t in);
    bytes_t other;
    other = in ^ rotate_columns(in, 2);
    for (int unsigned i = 0; i < 16; i++) prepare[i] = in[i] ^ xtime(xtime(other[i]));
  endfunction
endmodule
