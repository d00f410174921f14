// MARS (the AES candidate as tweaked in 1999): rings for forward mixing, for the sixteen core rounds and for backward
// mixing, so that a block is mixed while others are in the core.
//
// A mixing round takes two cycles, S-box | sums. A core round takes six:
//   1 subkeys  2 sum and products  3 S-box and sum of the products  4, 5 rotations  6 sums
// With the words in reverse order, decryption is the same but for signs and the place of a rotation. The S-box is block
// ROM: four for each mixing, one for the core, one for the keys.
module ace_mars
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
  localparam int unsigned Core = stages_of(Mars, LongKeys);

  // Subkeys: of the core rounds in pairs, and rows of the four in front of encryption and the four behind it.
  logic key_valid, key_slot;
  logic [5:0] key_index;
  logic [3:0] key_pair;
  word_t key_word_made;
  ace_mars_keys #(
    .LongKeys(LongKeys)
  ) u_keys (
    .clk_i,
    .rst_ni,
    .clear_i(wipe_i.active),
    .key_i,
    .valid_o(key_valid),
    .slot_o(key_slot),
    .index_o(key_index),
    .word_o(key_word_made)
  );

  (* ram_style = "distributed" *) word_t adds_q[32], multiplies_q[32];
  logic inner;
  logic [4:0] inner_at, core_at;
  logic [1:0] outer_at;
  word_t key_word_kept;
  assign key_pair      = 4'(key_index[5:1] - 5'd2);
  assign inner         = key_valid && key_index >= 6'd4 && key_index < 6'd36;
  assign inner_at      = wipe_i.active ? wipe_i.at[4:0] : {key_slot, key_pair};
  assign outer_at      = wipe_i.active ? wipe_i.at[1:0] : {key_slot, key_index[5]};
  assign key_word_kept = wipe_i.active ? '0 : key_word_made;
  always_ff @(posedge clk_i) begin
    if (wipe_i.active || (inner && !key_index[0])) adds_q[inner_at] <= key_word_kept;
    if (wipe_i.active || (inner && key_index[0])) multiplies_q[inner_at] <= key_word_kept;
  end

  words_t enter_keys, leave_keys;
  logic [1:0] enter_at, leave_at;
  for (genvar i = 0; i < 4; i++) begin : g_outer
    (* ram_style = "distributed" *) word_t outer_q[4];
    always_ff @(posedge clk_i) begin
      if (wipe_i.active || (key_valid && !inner && key_index[1:0] == 2'(i))) outer_q[outer_at] <= key_word_kept;
    end
    assign enter_keys[i] = outer_q[enter_at];
    assign leave_keys[i] = outer_q[leave_at];
  end

  // The core takes a block where one of its slots is free, as much later as forward mixing takes. Who asks whether one will
  // be is a ring as long as the core's.
  turn_t front[2], core[Core], rear[2];
  logic admits, front_ready, core_ready, rear_ready, front_leaves, core_leaves, rear_leaves;
  assign entry_ready_o = admits && front_ready;
  ace_ring #(
    .Stages(Core),
    .Passes('{16, 16, 16})
  ) u_admission (
    .clk_i,
    .rst_ni,
    .clear_i(wipe_i.active),
    .valid_i(entry_i.valid && front_ready),
    .ready_o(admits),
    .kind_i(entry_i.kind),
    .turn_o(),
    .leave_o()
  );
  ace_ring #(
    .Stages(2),
    .Passes('{8, 8, 8})
  ) u_front (
    .clk_i,
    .rst_ni,
    .clear_i(wipe_i.active),
    .valid_i(entry_i.valid && admits),
    .ready_o(front_ready),
    .kind_i(entry_i.kind),
    .turn_o(front),
    .leave_o(front_leaves)
  );
  ace_ring #(
    .Stages(Core),
    .Passes('{16, 16, 16})
  ) u_core (
    .clk_i,
    .rst_ni,
    .clear_i(wipe_i.active),
    .valid_i(front_leaves),
    .ready_o(core_ready),
    .kind_i(front[1].kind),
    .turn_o(core),
    .leave_o(core_leaves)
  );
  ace_ring #(
    .Stages(2),
    .Passes('{8, 8, 8})
  ) u_rear (
    .clk_i,
    .rst_ni,
    .clear_i(wipe_i.active),
    .valid_i(core_leaves),
    .ready_o(rear_ready),
    .kind_i(core[Core-1].kind),
    .turn_o(rear),
    .leave_o(rear_leaves)
  );

  logic checks_q = 1'b0;  // from the first reset on
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      checks_q <= 1'b1;
    end else if (checks_q) begin
      assert (!front_leaves || core_ready)
      else $error("no slot of the core is free");
      assert (!core_leaves || rear_ready)
      else $error("no slot of backward mixing is free");
    end
  end

  function automatic words_t reversed(words_t x, logic wanted);
    return wanted ? {x[0], x[1], x[2], x[3]} : x;
  endfunction

  // (A, B, C, D) = (B, C, D, A).
  function automatic words_t next_words(words_t x);
    return {x[0], x[3:1]};
  endfunction

  // Forward mixing.
  words_t front_q, front1_q, front_result, entering, in;
  word_t front_s0, front_s1, front_s2, front_s3, front_add, front_more;
  assign enter_at = {entry_i.kind.slot, Decrypts && !entry_i.kind.encrypt};
  assign in       = words_of(entry_i.block);
  for (genvar i = 0; i < 4; i++) begin : g_entering
    assign entering[i] = in[i] + enter_keys[i];
  end
  always_ff @(posedge clk_i) begin
    front_q  <= front[1].valid && !front[1].last ? front_result : reversed(entering, Decrypts && !entry_i.kind.encrypt);
    front1_q <= front_q;
  end
  ace_mars_rom u_front_s0 (
    .clk_i,
    .at_i({1'b0, front_q[0][7:0]}),
    .word_o(front_s0)
  );
  ace_mars_rom u_front_s1 (
    .clk_i,
    .at_i({1'b1, front_q[0][15:8]}),
    .word_o(front_s1)
  );
  ace_mars_rom u_front_s2 (
    .clk_i,
    .at_i({1'b0, front_q[0][23:16]}),
    .word_o(front_s2)
  );
  ace_mars_rom u_front_s3 (
    .clk_i,
    .at_i({1'b1, front_q[0][31:24]}),
    .word_o(front_s3)
  );
  // Behind rounds 0 and 4 D is added to A, behind 1 and 5 B.
  always_comb begin
    front_add  = '0;
    front_more = '0;
    if (front[1].pass[1:0] == 2'd0) begin
      front_add = front1_q[3] ^ front_s3;
    end else if (front[1].pass[1:0] == 2'd1) begin
      front_add  = front1_q[1] ^ front_s0;
      front_more = front_s1;
    end
  end
  assign front_result = next_words({
    front1_q[3] ^ front_s3,
    front1_q[2] + front_s2,
    (front1_q[1] ^ front_s0) + front_s1,
    rol(front1_q[0], 8) + front_add + front_more
  });

  // Core, the words in front of each stage, A as it goes into E.
  words_t core_q[Core], core_result;
  word_t source;
  logic decrypts0;
  assign decrypts0 = Decrypts && !core[0].kind.encrypt;
  assign source    = decrypts0 ? rol(core_q[0][0], 19) : core_q[0][0];
  assign core_at   = {core[0].kind.slot, core[0].pass[3:0] ^ {4{decrypts0}}};

  word_t add_q, multiply_q, turned_source;
  word_t m_q, m3_q, m4_q, m5_q, low_q, cross_q, across_q;
  word_t r_q, r4_q, r5_q, box, l4_q, l5_q, r_next;
  assign turned_source = rol(core_q[1][0], 13);
  assign r_next        = rol(r_q, 5);
  ace_mars_rom u_core_box (
    .clk_i,
    .at_i(m_q[8:0]),
    .word_o(box)
  );
  always_ff @(posedge clk_i) begin
    core_q[0] <= core[Core-1].valid && !core[Core-1].last ? core_result : front_result;
    core_q[1] <= {core_q[0][3:1], source};
    for (int unsigned i = 2; i < Core; i++) core_q[i] <= core_q[i-1];
    // 1
    add_q      <= adds_q[core_at];
    multiply_q <= multiplies_q[core_at];
    // 2
    m_q      <= core_q[1][0] + add_q;
    low_q    <= 32'(turned_source[15:0]) * 32'(multiply_q[15:0]);
    cross_q  <= 32'(turned_source[15:0]) * 32'(multiply_q[31:16]);
    across_q <= 32'(turned_source[31:16]) * 32'(multiply_q[15:0]);
    // 3
    m3_q <= m_q;
    r_q  <= rol(low_q + (cross_q << 16) + (across_q << 16), 5);
    // 4
    m4_q <= turned(m3_q, r_q[4:0]);
    l4_q <= box ^ r_q ^ r_next;
    r4_q <= r_next;
    // 5
    m5_q <= m4_q;
    l5_q <= turned(l4_q, r4_q[4:0]);
    r5_q <= r4_q;
  end
  // 6. In the second half of the rounds B and D change places.
  words_t c;
  word_t mixed, plain, sum_m, sum_l;
  logic decrypts5, second;
  assign c         = core_q[Core-1];
  assign decrypts5 = Decrypts && !core[Core-1].kind.encrypt;
  assign second    = core[Core-1].pass[3];
  assign mixed     = second ? c[3] : c[1];
  assign plain     = second ? c[1] : c[3];
  assign sum_m     = decrypts5 ? c[2] - m5_q : c[2] + m5_q;
  assign sum_l     = decrypts5 ? mixed - l5_q : mixed + l5_q;
  assign core_result = next_words({
    second ? sum_l : plain ^ r5_q, sum_m, second ? plain ^ r5_q : sum_l, decrypts5 ? c[0] : rol(c[0], 13)
  });

  // Backward mixing. In front of rounds 2 and 6 D is subtracted from A, in front of 3 and 7 B. That is done behind the
  // rounds before.
  words_t rear_q, rear1_q, rear_result;
  word_t rear_s0, rear_s1, rear_s2, rear_s3, rear_take, rear_more;
  always_ff @(posedge clk_i) begin
    rear_q  <= rear[1].valid && !rear[1].last ? rear_result : core_result;
    rear1_q <= rear_q;
  end
  ace_mars_rom u_rear_s0 (
    .clk_i,
    .at_i({1'b1, rear_q[0][7:0]}),
    .word_o(rear_s0)
  );
  ace_mars_rom u_rear_s1 (
    .clk_i,
    .at_i({1'b0, rear_q[0][15:8]}),
    .word_o(rear_s1)
  );
  ace_mars_rom u_rear_s2 (
    .clk_i,
    .at_i({1'b1, rear_q[0][23:16]}),
    .word_o(rear_s2)
  );
  ace_mars_rom u_rear_s3 (
    .clk_i,
    .at_i({1'b0, rear_q[0][31:24]}),
    .word_o(rear_s3)
  );
  always_comb begin
    rear_take = '0;
    rear_more = '0;
    if (rear[1].pass[1:0] == 2'd1) begin
      rear_take = rol(rear1_q[0], 24);
    end else if (rear[1].pass[1:0] == 2'd2) begin
      rear_take = rear1_q[2];
      rear_more = rear_s3;
    end
  end
  assign rear_result = next_words({
    (rear1_q[3] - rear_s2) ^ rear_s1,
    rear1_q[2] - rear_s3,
    (rear1_q[1] ^ rear_s0) - rear_take + rear_more,
    rol(rear1_q[0], 24)
  });

  // Behind the rounds.
  words_t out_q, left;
  logic out_valid_q, out_slot_q, out_decrypt_q;
  always_ff @(posedge clk_i) begin
    out_q         <= reversed(rear_result, Decrypts && !rear[1].kind.encrypt);
    out_slot_q    <= rear[1].kind.slot;
    out_decrypt_q <= Decrypts && !rear[1].kind.encrypt;
  end
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) out_valid_q <= 1'b0;
    else out_valid_q <= rear_leaves && !wipe_i.active;
  end
  assign leave_at = {out_slot_q, !out_decrypt_q};
  for (genvar i = 0; i < 4; i++) begin : g_left
    assign left[i] = out_q[i] - leave_keys[i];
  end
  assign result_o = '{valid: out_valid_q, slot: out_slot_q, block: block_of(left)};
endmodule
