// The port of an ACE cipher: keys, blocks and results, each with valid and ready.
//
// The rule for keys: a block is under the key that was the newest when the block was taken. A key that is taken in the same
// cycle as a block is for the next one. There are two key slots. A key goes into the slot that the newest key does not
// have, as soon as no block of the former key is inside any more and the newest key is expanded. Blocks of the new key
// may come in the next cycle; they start when their first subkeys are there.
//
// Results leave in the order in which their blocks came. A block is taken only where there is room for its result, so the
// cipher itself never waits for the output.
//
// wipe_i, for a cycle or longer, forgets all keys and all blocks. From its first cycle on nothing is taken and no result is
// valid. WipeCycles after its last cycle keys are taken again, and key memories, queues and the cipher's registers hold
// zeros or what zeros lead to. The same happens after reset.
module ace_port
  import ace_pkg::*;
#(
  parameter int unsigned TagWidth = 8,
  parameter int unsigned Depth = 16,  // blocks inside, a power of two
  // By key length: from the key to the first cycle in which a block may start, and until the next key can come.
  parameter int unsigned FirstEncrypt[3] = '{2, 2, 2},
  parameter int unsigned FirstDecrypt[3] = '{2, 2, 2},
  parameter int unsigned Expand[3] = '{2, 2, 2},
  parameter int unsigned WipeCycles = Depth > 64 ? Depth : 64  // a power of two, not less than Depth
) (
  input  logic                         clk_i,
  input  logic                         rst_ni,
  input  logic                         wipe_i,
  input  logic                         key_valid_i,
  output logic                         key_ready_o,
  input  logic          [       255:0] key_i,
  input  key_bits_t                    key_bits_i,
  input  logic                         block_valid_i,
  output logic                         block_ready_o,
  input  block_t                       block_i,
  input  logic                         encrypt_i,
  input  logic          [TagWidth-1:0] tag_i,
  output logic                         out_valid_o,
  input  logic                         out_ready_i,
  output block_t                       block_o,
  output logic          [TagWidth-1:0] tag_o,
  // The cipher.
  output wipe_t                        wipe_o,
  output key_command_t                 key_o,
  output block_entry_t                 entry_o,
  input  logic                         entry_ready_i,
  input  block_result_t                result_i
);
  localparam int unsigned AddrWidth = $clog2(Depth);
  localparam int unsigned WaitWidth = 10;
  typedef logic [AddrWidth:0] pointer_t;  // one bit more than an address tells full from empty
  typedef logic [WaitWidth-1:0] wait_t;

  function automatic wait_t cycles(key_bits_t bits, int unsigned a, int unsigned b, int unsigned c);
    return WaitWidth'(bits == 2'd0 ? a : bits == 2'd1 ? b : c);
  endfunction

  // Wiping.
  logic wiping_q;
  logic [$clog2(WipeCycles)-1:0] wipe_at_q;
  logic open;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      wiping_q  <= 1'b1;
      wipe_at_q <= '0;
    end else if (wipe_i) begin
      wiping_q  <= 1'b1;
      wipe_at_q <= '0;
    end else if (wiping_q) begin
      wiping_q  <= !(&wipe_at_q);
      wipe_at_q <= wipe_at_q + 1'b1;
    end
  end
  assign wipe_o = '{active: wiping_q, at: 6'(wipe_at_q)};
  assign open   = !wiping_q && !wipe_i;

  // Keys. The counts are of cycles that are still to wait for the newest key.
  logic keyed_q, slot_q, take_key, started, done;
  key_bits_t bits_q;
  wait_t encrypt_wait_q, decrypt_wait_q, expand_wait_q;
  logic encrypt_due_q, decrypt_due_q, expanded_q;
  logic [1:0][AddrWidth:0] inside_q;  // blocks by slot, until their result is there

  assign key_ready_o = open && expanded_q && inside_q[!slot_q] == '0;
  assign take_key    = key_valid_i && key_ready_o;
  assign key_o       = '{valid: take_key, slot: !slot_q, bits: key_bits_i, key: key_i};

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      keyed_q <= 1'b0;
      slot_q  <= 1'b0;
    end else if (!open) begin
      keyed_q <= 1'b0;
      slot_q  <= 1'b0;
    end else if (take_key) begin
      keyed_q <= 1'b1;
      slot_q  <= !slot_q;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      bits_q <= '0;
      {encrypt_wait_q, decrypt_wait_q, expand_wait_q} <= '0;
      {encrypt_due_q, decrypt_due_q, expanded_q} <= '1;
    end else if (!open) begin
      bits_q <= '0;
      {encrypt_wait_q, decrypt_wait_q, expand_wait_q} <= '0;
      {encrypt_due_q, decrypt_due_q, expanded_q} <= '1;
    end else if (take_key) begin
      bits_q         <= key_bits_i;
      encrypt_wait_q <= cycles(key_bits_i, FirstEncrypt[0], FirstEncrypt[1], FirstEncrypt[2]) - 1'b1;
      decrypt_wait_q <= cycles(key_bits_i, FirstDecrypt[0], FirstDecrypt[1], FirstDecrypt[2]) - 1'b1;
      expand_wait_q  <= cycles(key_bits_i, Expand[0], Expand[1], Expand[2]) - 1'b1;
      {encrypt_due_q, decrypt_due_q, expanded_q} <= '0;
    end else begin
      if (!encrypt_due_q) encrypt_wait_q <= encrypt_wait_q - 1'b1;
      if (!decrypt_due_q) decrypt_wait_q <= decrypt_wait_q - 1'b1;
      if (!expanded_q) expand_wait_q <= expand_wait_q - 1'b1;
      encrypt_due_q <= encrypt_due_q || encrypt_wait_q == 10'd1;
      decrypt_due_q <= decrypt_due_q || decrypt_wait_q == 10'd1;
      expanded_q    <= expanded_q || expand_wait_q == 10'd1;
    end
  end

  // A block waits in front of the cipher until the cipher takes it.
  logic take_block, pending_q, due;
  block_kind_t kind_q;
  block_t block_q;
  pointer_t take_q, done_q, head_q;  // blocks taken, results there, results given out

  // A block under the former key finds all subkeys.
  assign due           = kind_q.slot != slot_q || (kind_q.encrypt ? encrypt_due_q : decrypt_due_q);
  assign entry_o       = '{valid: pending_q && due, kind: kind_q, block: block_q};
  assign started       = entry_o.valid && entry_ready_i;
  assign block_ready_o = open && keyed_q && (!pending_q || started) && take_q - head_q != pointer_t'(Depth);
  assign take_block    = block_valid_i && block_ready_o;
  assign done          = result_i.valid;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) pending_q <= 1'b0;
    else pending_q <= open && (take_block || (pending_q && !started));
  end
  always_ff @(posedge clk_i) begin
    if (!open || take_block) begin
      block_q <= open ? block_i : '0;
      kind_q  <= open ? '{slot: slot_q, bits: bits_q, encrypt: encrypt_i} : '0;
    end
  end

  for (genvar i = 0; i < 2; i++) begin : g_inside
    logic more, less;
    assign more = take_block && slot_q == 1'(i);
    assign less = done && result_i.slot == 1'(i);
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) inside_q[i] <= '0;
      else inside_q[i] <= open ? inside_q[i] + pointer_t'(more) - pointer_t'(less) : '0;
    end
  end

  // Results wait with the tags of their blocks.
  block_t results_q[Depth];
  logic [TagWidth-1:0] tags_q[Depth];
  assign out_valid_o = done_q != head_q && open;
  assign block_o     = results_q[head_q[AddrWidth-1:0]];
  assign tag_o       = tags_q[head_q[AddrWidth-1:0]];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      {take_q, done_q, head_q} <= '0;
    end else if (!open) begin
      {take_q, done_q, head_q} <= '0;
    end else begin
      take_q <= take_q + pointer_t'(take_block);
      done_q <= done_q + pointer_t'(done);
      head_q <= head_q + pointer_t'(out_valid_o && out_ready_i);
    end
  end
  always_ff @(posedge clk_i) begin
    if (wiping_q || done) results_q[AddrWidth'(wiping_q ? wipe_at_q : done_q)] <= wiping_q ? '0 : result_i.block;
    if (wiping_q || take_block) tags_q[AddrWidth'(wiping_q ? wipe_at_q : take_q)] <= wiping_q ? '0 : tag_i;
  end
endmodule
