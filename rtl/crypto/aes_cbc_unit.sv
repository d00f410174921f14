// AES-CBC (SP 800-38A), one round a cycle: blocks of up to Lanes packets take turns in one round.
//
// CBC encryption chains the blocks of a packet, so a pipelined round is only kept busy by blocks of different packets.
// With one lane there is one register in the loop and a block takes 11 cycles (AES-128) or 15. With two there is another
// behind the S-boxes, which shortens the path, and each lane's block takes twice the cycles: the unit does as many blocks
// as before. Each lane is a port of its own: a command with key and IV, then the packet's blocks. Its round keys are kept
// for the packet; encrypting waits 6 cycles (AES-128) or 2 for them at each packet, decrypting 16.
module aes_cbc_unit
  import aes_pkg::*, esp_pkg::*;
#(
  parameter bit          Open  = 1'b0,  // decrypts
  parameter int unsigned Lanes = 1      // 1 or 2
) (
  input  logic                      clk_i,
  input  logic                      rst_ni,
  input  logic   [Lanes-1:0]        cmd_valid_i,
  output logic   [Lanes-1:0]        cmd_ready_o,
  input  logic   [Lanes-1:0][255:0] key_i,        // AES-128: in the upper half
  input  logic   [Lanes-1:0]        aes128_i,
  input  block_t [Lanes-1:0]        iv_i,
  input  logic   [Lanes-1:0]        valid_i,
  output logic   [Lanes-1:0]        ready_o,
  input  block_t [Lanes-1:0]        block_i,
  input  logic   [Lanes-1:0]        last_i,       // of the packet
  output logic   [Lanes-1:0]        valid_o,
  input  logic   [Lanes-1:0]        ready_i,
  output block_t [Lanes-1:0]        block_o,
  output logic   [Lanes-1:0]        last_o
);
  localparam bit Alone = Lanes == 1;
  localparam int unsigned LaneWidth = Lanes > 1 ? $clog2(Lanes) : 1;
  typedef logic [LaneWidth-1:0] lane_t;

  function automatic lane_t next(lane_t lane);
    return lane == lane_t'(Lanes - 1) ? '0 : lane + 1'b1;
  endfunction

  function automatic table_t make_inverse();
    for (int unsigned i = 0; i < 256; i++) make_inverse[Sbox[i]] = 8'(i);
  endfunction
  localparam table_t InverseSbox = make_inverse();

  // Per lane: a packet is in work, its round keys are there, its blocks' next step. Step 0 takes a block.
  logic [Lanes-1:0] active_q, keyed_q, aes128_q, first_q, last_q;
  logic [Lanes-1:0][3:0] step_q;
  block_t [Lanes-1:0] iv_q;  // Open: the ciphertext block before

  // One lane after another may give a command; its key is expanded into the lane's 16 words of the key memory.
  // Those of AES-128 are 0 and 5 to 14.
  lane_t cmd_lane_q, key_lane_q;
  logic [3:0] expand_q;  // cycles since the start
  logic start;
  block_t second_q, expanded;
  block_t keys_q[16*Lanes];

  assign start = cmd_valid_i[cmd_lane_q] && cmd_ready_o[cmd_lane_q];
  for (genvar i = 0; i < Lanes; i++) begin : g_cmd_ready
    assign cmd_ready_o[i] = cmd_lane_q == lane_t'(i) && expand_q == '0 && !active_q[i];
  end

  aes_expand u_expand (
    .clk_i,
    .rst_ni,
    .start_i(start),
    .aes128_i(aes128_i[cmd_lane_q]),
    .raw_i(start ? key_i[cmd_lane_q][255:128] : second_q),
    .key_o(expanded)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      cmd_lane_q <= '0;
      expand_q   <= '0;
    end else begin
      if (expand_q == '0) cmd_lane_q <= next(cmd_lane_q);
      expand_q <= start || expand_q != '0 ? expand_q + 1'b1 : '0;
    end
  end

  logic [3:0] keyed_at;
  assign keyed_at = Open ? 4'd15 : aes128_q[key_lane_q] ? 4'd5 : 4'd1;

  always_ff @(posedge clk_i) begin
    if (start) begin
      second_q   <= key_i[cmd_lane_q][127:0];
      key_lane_q <= cmd_lane_q;
    end
    if (expand_q != '0) keys_q[16*key_lane_q+32'(expand_q-4'd1)] <= expanded;
  end

  // The lane whose turn it is at the S-boxes, and what it does.
  lane_t turn_q;
  logic go, first_step, final_step;
  logic [3:0] step, rounds, key_index;
  assign step       = step_q[turn_q];
  assign rounds     = 4'(aes128_q[turn_q] ? Rounds128 : Rounds);
  assign first_step = step == '0;
  assign final_step = step == rounds;
  assign go         = active_q[turn_q] && keyed_q[turn_q] &&
      (first_step ? valid_i[turn_q] : !final_step || !valid_o[turn_q]);
  if (Open) begin : g_key_index_open
    // AES-128: 14 to 5, then 0.
    assign key_index = final_step ? '0 : 4'(Rounds) - step;
  end else begin : g_key_index
    assign key_index = first_step || !aes128_q[turn_q] ? step : step + 4'(Rounds - Rounds128);
  end
  for (genvar i = 0; i < Lanes; i++) begin : g_ready
    assign ready_o[i] = active_q[i] && keyed_q[i] && turn_q == lane_t'(i) && step_q[i] == '0;
  end

  block_t state_q, sub, around;
  for (genvar i = 0; i < 16; i++) begin : g_sub
    assign sub[8*i+:8] = Open ? InverseSbox[state_q[8*i+:8]] : Sbox[state_q[8*i+:8]];
  end
  // What goes round the S-boxes: a block that enters, or the state of a lane that waits. A lane alone waits where it is.
  assign around = !Alone && (!go || !first_step) ? state_q :
      Open ? block_i[turn_q] : block_i[turn_q] ^ (first_q[turn_q] ? iv_q[turn_q] : state_q);

  // The second half of the round, in the same cycle or the next.
  block_t sub_b, around_b;
  logic pass_b, wait_b, final_b;
  logic [3:0] key_index_b;
  lane_t lane_b;
  if (Alone) begin : g_single
    assign {sub_b, around_b, key_index_b, lane_b} = {sub, around, key_index, turn_q};
    assign {pass_b, wait_b, final_b} = {first_step, 1'b0, go && final_step};
  end else begin : g_double
    always_ff @(posedge clk_i) begin
      {sub_b, around_b, key_index_b, lane_b} <= {sub, around, key_index, turn_q};
      {pass_b, wait_b} <= {!go || first_step, !go};
    end
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) final_b <= 1'b0;
      else final_b <= go && final_step;
    end
  end

  block_t key, state_d, result;
  assign key = keys_q[16*lane_b+32'(key_index_b)];
  if (Open) begin : g_open
    block_t added, previous;
    assign added    = (pass_b ? around_b : unshift_rows(sub_b)) ^ (wait_b ? '0 : key);
    assign state_d  = pass_b ? added : unmix_columns(added);
    assign previous = iv_q[lane_b];
    assign result   = added ^ previous;
  end else begin : g_seal
    block_t shifted;
    assign shifted = shift_rows(sub_b);
    assign state_d = (pass_b ? around_b : final_b ? shifted : mix_columns(shifted)) ^ (wait_b ? '0 : key);
    assign result  = state_d;
  end
  always_ff @(posedge clk_i) if (!Alone || go) state_q <= state_d;

  // Lanes. Open keeps the block that entered until it is the one before.
  block_t [Lanes-1:0] entered_q;
  for (genvar i = 0; i < Lanes; i++) begin : g_lane
    logic mine, mine_b, begins;
    assign mine   = go && turn_q == lane_t'(i);
    assign mine_b = final_b && lane_b == lane_t'(i);
    assign begins = start && cmd_lane_q == lane_t'(i);

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        active_q[i] <= 1'b0;
        keyed_q[i]  <= 1'b0;
        valid_o[i]  <= 1'b0;
        step_q[i]   <= '0;
      end else begin
        if (begins) active_q[i] <= 1'b1;
        else if (mine && final_step && last_q[i]) active_q[i] <= 1'b0;
        if (begins) keyed_q[i] <= 1'b0;
        else if (expand_q == keyed_at && key_lane_q == lane_t'(i)) keyed_q[i] <= 1'b1;
        if (mine) step_q[i] <= final_step ? '0 : step_q[i] + 1'b1;
        if (mine_b) valid_o[i] <= 1'b1;
        else if (ready_i[i]) valid_o[i] <= 1'b0;
      end
    end

    always_ff @(posedge clk_i) begin
      if (begins) begin
        aes128_q[i] <= aes128_i[i];
        first_q[i]  <= 1'b1;
      end else if (mine) begin
        first_q[i] <= 1'b0;
      end
      if (mine && first_step) begin
        last_q[i]    <= last_i[i];
        entered_q[i] <= block_i[i];
      end
      if (begins) iv_q[i] <= iv_i[i];
      else if (Open && mine_b) iv_q[i] <= entered_q[i];
      if (mine_b) begin
        block_o[i] <= result;
        last_o[i]  <= last_q[i];
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) turn_q <= '0;
    else turn_q <= next(turn_q);
  end

  // Byte 4c+r, counted from the highest bits, is row r of column c.
  function automatic block_t shift_rows(block_t in);
    for (int unsigned i = 0; i < 16; i++) shift_rows[127-8*i-:8] = in[127-8*((5*i)%16)-:8];
  endfunction

  function automatic block_t unshift_rows(block_t in);
    for (int unsigned i = 0; i < 16; i++) unshift_rows[127-8*((5*i)%16)-:8] = in[127-8*i-:8];
  endfunction

  function automatic logic [31:0] mix_column(logic [31:0] column);
    for (int unsigned i = 0; i < 4; i++) begin
      byte_t a, b, c, d;
      {a, b, c, d} = column << 8 * i | column >> (32 - 8 * i);
      mix_column[31-8*i-:8] = xtime(a ^ b) ^ b ^ c ^ d;
    end
  endfunction

  function automatic block_t mix_columns(block_t in);
    for (int unsigned c = 0; c < 4; c++) mix_columns[32*c+:32] = mix_column(in[32*c+:32]);
  endfunction

  // The inverse is MixColumns of a column to which 4 (a ^ c) and 4 (b ^ d) were added.
  function automatic block_t unmix_columns(block_t in);
    for (int unsigned i = 0; i < 4; i++) begin
      byte_t a, b, c, d, ac, bd;
      {a, b, c, d} = in[32*i+:32];
      ac = xtime(xtime(a ^ c));
      bd = xtime(xtime(b ^ d));
      unmix_columns[32*i+:32] = mix_column({a ^ ac, b ^ bd, c ^ ac, d ^ bd});
    end
  endfunction
endmodule
