// Serpent in bitslice form: Unroll rounds in a ring, two cycles each: S-boxes | linear transformation and the next subkey.
//
// Decryption has the same form: inverse S-boxes | subkey and inverse transformation. The key expansion makes a subkey a
// cycle: prekeys | S-boxes | memory. Encryption starts four cycles after the key, and decryption when all subkeys are
// made.
// Bytes are in the order of the field's libraries; the NIST submission prints the last byte first.
module ace_serpent
  import ace_pkg::*;
#(
  parameter bit          Decrypts = 1'b1,
  parameter bit          LongKeys = 1'b1,
  parameter int unsigned Unroll = 2  // 2, or without Decrypts 32
) (
  input  logic          clk_i,
  input  logic          rst_ni,
  input  wipe_t         wipe_i,
  input  key_command_t  key_i,
  input  block_entry_t  entry_i,
  output logic          entry_ready_o,
  output block_result_t result_o
);
  localparam int unsigned Rounds = 32;
  localparam int unsigned Stages = 2 * Unroll;
  localparam int unsigned Passes = Rounds / Unroll;
  localparam int unsigned RowWidth = Passes > 1 ? $clog2(Passes) : 1;

  // The S-boxes, what becomes of 0 in the highest digit.
  typedef logic [63:0] box_t;
  localparam box_t Boxes[8] = '{
    64'h38f1a65bed42709c, 64'hfc27905a1be86d34, 64'h86793cafd1e40b52, 64'h0fb8c963d124a75e,
    64'h1f83c0b6254a9e7d, 64'hf52b4a9c03e8d671, 64'h72c5846be91fd3a0, 64'h1df0e82b74ca9356
  };

  function automatic logic [3:0] look(box_t box, logic [3:0] at);
    return box[63-4*at-:4];
  endfunction

  function automatic box_t inverse(box_t box);
    for (int unsigned i = 0; i < 16; i++) inverse[63-4*look(box, 4'(i))-:4] = 4'(i);
  endfunction

  typedef box_t boxes_t[8];
  function automatic boxes_t make_inverses();
    for (int unsigned i = 0; i < 8; i++) make_inverses[i] = inverse(Boxes[i]);
  endfunction
  localparam boxes_t Inverses = make_inverses();

  function automatic words_t substitute(words_t x, logic [2:0] which, logic backwards);
    for (int unsigned i = 0; i < 32; i++) begin
      logic [3:0] in, out;
      in  = {x[3][i], x[2][i], x[1][i], x[0][i]};
      out = '0;
      for (int unsigned box = 0; box < 8; box++) begin
        if (which == 3'(box)) out = Decrypts && backwards ? look(Inverses[box], in) : look(Boxes[box], in);
      end
      {substitute[3][i], substitute[2][i], substitute[1][i], substitute[0][i]} = out;
    end
  endfunction

  function automatic words_t mix(words_t x);
    word_t a, c;
    a      = rol(x[0], 13);
    c      = rol(x[2], 3);
    mix[1] = rol(x[1] ^ a ^ c, 1);
    mix[3] = rol(x[3] ^ c ^ a << 3, 7);
    mix[0] = rol(a ^ mix[1] ^ mix[3], 5);
    mix[2] = rol(c ^ mix[3] ^ mix[1] << 7, 22);
  endfunction

  function automatic words_t unmix(words_t x);
    word_t a, c;
    a        = rol(x[0], 27) ^ x[1] ^ x[3];
    c        = rol(x[2], 10) ^ x[3] ^ x[1] << 7;
    unmix[3] = rol(x[3], 25) ^ c ^ a << 3;
    unmix[1] = rol(x[1], 31) ^ a ^ c;
    unmix[0] = rol(a, 19);
    unmix[2] = rol(c, 29);
  endfunction

  // Key expansion: the last eight prekeys, [7] the newest. Four are made a cycle, and the newest four become a subkey.
  word_t [7:0] window_q, next;
  logic slot_q, expands_q, made_q;
  logic [5:0] step_q;  // of the subkey whose prekeys are made
  logic [5:0] number;  // of the subkey that is made of the prekeys before
  assign number = step_q - 1'b1;

  always_comb begin
    next = window_q;
    for (int unsigned i = 0; i < 4; i++) begin
      next = {rol(next[0] ^ next[3] ^ next[5] ^ next[7] ^ 32'h9e3779b9 ^ {24'b0, step_q, 2'(i)}, 11), next[7:1]};
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      expands_q <= 1'b0;
      made_q    <= 1'b0;
    end else begin
      expands_q <= !wipe_i.active && (key_i.valid || (expands_q && 32'(step_q) != Rounds));
      made_q    <= !wipe_i.active && expands_q;
    end
  end
  always_ff @(posedge clk_i) begin
    if (wipe_i.active) begin
      {window_q, slot_q, step_q} <= '0;
    end else if (key_i.valid) begin
      for (int unsigned i = 0; i < 8; i++) window_q[i] <= key_word(padded(key_i.key, key_i.bits), i);
      slot_q <= key_i.slot;
      step_q <= '0;
    end else if (expands_q) begin
      window_q <= next;
      step_q   <= step_q + 1'b1;
    end
  end

  // Behind a shorter key come a one and zeros.
  function automatic logic [255:0] padded(logic [255:0] key, key_bits_t bits);
    if (!LongKeys || bits == 2'd0) return {key[255:128], 8'd1, 120'b0};
    if (bits == 2'd1) return {key[255:64], 8'd1, 56'b0};
    return key;
  endfunction

  // A subkey, and its number, before it goes into a memory.
  block_t subkey_q;
  logic subkey_valid_q;
  logic [5:0] subkey_number_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) subkey_valid_q <= 1'b0;
    else subkey_valid_q <= !wipe_i.active && made_q;
  end
  always_ff @(posedge clk_i) begin
    if (wipe_i.active) begin
      {subkey_q, subkey_number_q} <= '0;
    end else begin
      subkey_q        <= substitute(window_q[7:4], 3'd3 - number[2:0], 1'b0);
      subkey_number_q <= number;
    end
  end

  // The first and the last subkey lie apart: a block enters with the one of its direction and leaves with the other.
  (* ram_style = "distributed" *) block_t outer_q[4];
  logic outer;
  logic [1:0] outer_at, enter_at, leave_at;
  assign outer    = subkey_valid_q && (subkey_number_q == '0 || 32'(subkey_number_q) == Rounds);
  assign outer_at = wipe_i.active ? wipe_i.at[1:0] : {slot_q, subkey_number_q == '0};
  assign enter_at = {entry_i.kind.slot, !Decrypts || entry_i.kind.encrypt};
  always_ff @(posedge clk_i) begin
    if (wipe_i.active || outer) outer_q[outer_at] <= wipe_i.active ? '0 : subkey_q;
  end

  turn_t turn[Stages];
  logic leaves;
  words_t state[Stages+1];
  words_t state_q;
  assign leave_at = {turn[Stages-2].kind.slot, Decrypts && !turn[Stages-2].kind.encrypt};

  for (genvar g = 0; g < Unroll; g++) begin : g_round
    // Bank g has the subkeys that are used behind its S-boxes.
    (* ram_style = "distributed" *) block_t bank_q[2<<RowWidth];
    logic mine, encrypts, last;
    logic [RowWidth:0] write_at, read_at;
    assign mine     = subkey_valid_q && !outer && (32'(subkey_number_q) - 1) % Unroll == g;
    assign write_at = wipe_i.active ? (RowWidth + 1)'(wipe_i.at) :
        {slot_q, RowWidth'((32'(subkey_number_q) - 1) / Unroll)};
    always_ff @(posedge clk_i) begin
      if (wipe_i.active || mine) bank_q[write_at] <= wipe_i.active ? '0 : subkey_q;
    end

    int unsigned index;  // of the round, in its direction
    words_t sub_q, key_q, mixed, result;
    assign index   = 32'(turn[2*g].pass) * Unroll + g;
    assign read_at = {
      turn[2*g].kind.slot,
      RowWidth'((!Decrypts || turn[2*g].kind.encrypt ? index : Rounds - 2 - index) / Unroll)
    };
    always_ff @(posedge clk_i) begin
      sub_q <= substitute(
          state[2*g], 3'(index) ^ {3{Decrypts && !turn[2*g].kind.encrypt}}, !turn[2*g].kind.encrypt);
      key_q <= g == Unroll - 1 && turn[2*g].last ? outer_q[leave_at] : bank_q[read_at];
    end
    assign state[2*g+1] = sub_q;

    assign encrypts = !Decrypts || turn[2*g+1].kind.encrypt;
    assign last     = g == Unroll - 1 && turn[2*g+1].last;
    assign mixed    = last ? sub_q : mix(sub_q);
    assign result   = encrypts ? mixed ^ key_q : last ? sub_q ^ key_q : unmix(sub_q ^ key_q);
    if (g < Unroll - 1) begin : g_next
      words_t next_q;
      always_ff @(posedge clk_i) next_q <= result;
      assign state[2*g+2] = next_q;
    end else begin : g_last
      assign state[2*g+2] = result;
    end
  end

  ace_ring #(
    .Stages(Stages),
    .Passes('{Passes, Passes, Passes})
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
    else state_q <= words_of(entry_i.block) ^ outer_q[enter_at];
  end
  assign state[0] = state_q;
  assign result_o = '{valid: leaves, slot: turn[Stages-1].kind.slot, block: block_of(state[Stages])};
endmodule
