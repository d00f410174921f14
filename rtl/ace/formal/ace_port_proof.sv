// Proof of ace_port in front of any cipher that gives its results in order: one block is followed. Its result comes out
// exactly once, with its tag, behind those of the blocks before it, unless the port is wiped. Its key is the newest of the
// cycle in which it was taken, and no key goes into that slot as long as the cipher has not given its result.
module ace_port_proof
  import ace_pkg::*;
(
  input logic      clk_i,
  input logic      wipe_i,
  input logic      key_valid_i,
  input key_bits_t key_bits_i,
  input logic      block_valid_i,
  input logic      encrypt_i,
  input logic      tag_i,
  input logic      out_ready_i,
  input logic      entry_ready_i,
  input logic      result_valid_i,
  input logic      result_bit_i,
  input logic      follow_i  // picks the block that is followed
);
  localparam int unsigned Depth = 4;
  typedef logic [2:0] pointer_t;

  logic rst_nq = 1'b0;
  always_ff @(posedge clk_i) rst_nq <= 1'b1;

  logic key_ready, block_ready, out_valid, tag;
  block_t block;
  wipe_t wipe;
  key_command_t key;
  block_entry_t entry;
  block_result_t result;
  ace_port #(
    .TagWidth(1),
    .Depth(Depth),
    .FirstEncrypt('{2, 3, 4}),
    .FirstDecrypt('{3, 4, 5}),
    .Expand('{3, 5, 7}),
    .WipeCycles(Depth)
  ) u_port (
    .clk_i,
    .rst_ni(rst_nq),
    .wipe_i,
    .key_valid_i,
    .key_ready_o(key_ready),
    .key_i('0),
    .key_bits_i,
    .block_valid_i,
    .block_ready_o(block_ready),
    .block_i('0),
    .encrypt_i,
    .tag_i,
    .out_valid_o(out_valid),
    .out_ready_i,
    .block_o(block),
    .tag_o(tag),
    .wipe_o(wipe),
    .key_o(key),
    .entry_o(entry),
    .entry_ready_i,
    .result_i(result)
  );

  // Any cipher: it starts when it likes and gives results in order when it likes. Blocks inside by slot; those of the slot
  // that did not start last are the older ones.
  logic [1:0][2:0] begun_q = '0;
  logic last_q = 1'b0;
  logic starts, older;
  assign starts = entry.valid && entry_ready_i;
  assign older  = begun_q[!last_q] != '0 ? !last_q : last_q;
  assign result = '{valid: result_valid_i && begun_q[older] != '0, slot: older, block: {127'b0, result_bit_i}};
  always_ff @(posedge clk_i) begin
    if (!rst_nq || wipe.active) begin
      begun_q <= '0;
    end else begin
      for (int unsigned i = 0; i < 2; i++) begin
        begun_q[i] <= begun_q[i] + 3'(starts && entry.kind.slot == 1'(i)) - 3'(result.valid && result.slot == 1'(i));
      end
    end
    if (starts) last_q <= entry.kind.slot;
  end

  // The followed block: how many results leave before its own, and how many the cipher gives before.
  logic inside_q = 1'b0;
  logic gone_q = 1'b0;
  logic given_q = 1'b0;  // by the cipher
  logic slot_q, tag_q, value_q;
  pointer_t ahead_q, before_q, at_q;
  logic take, leave, open;
  assign take  = block_valid_i && block_ready;
  assign leave = out_valid && out_ready_i;
  assign open  = !wipe.active && !wipe_i;

  always_ff @(posedge clk_i) begin
    if (rst_nq) begin
      if (!open) begin
        inside_q <= 1'b0;
        given_q  <= 1'b0;
      end else if (take && follow_i && !inside_q && !gone_q) begin
        inside_q <= 1'b1;
        slot_q   <= u_port.slot_q;
        tag_q    <= tag_i;
        at_q     <= u_port.take_q;
        ahead_q  <= u_port.take_q - u_port.head_q - 3'(leave);
        before_q <= u_port.take_q - u_port.done_q - 3'(result.valid);
      end else if (inside_q) begin
        if (leave) begin
          ahead_q <= ahead_q - 1'b1;
          if (ahead_q == '0) {inside_q, gone_q, given_q} <= 3'b010;
        end
        if (result.valid && !given_q) begin
          before_q <= before_q - 1'b1;
          if (before_q == '0) begin
            given_q <= 1'b1;
            value_q <= result_bit_i;
          end
        end
      end
    end
  end

  logic held_q = 1'b0;  // an output waited in the cycle before
  always_ff @(posedge clk_i) held_q <= rst_nq && out_valid && !out_ready_i;

  pointer_t stored, working;
  logic [1:0][2:0] held_by_slot;
  assign stored  = u_port.take_q - u_port.head_q;
  assign working = u_port.take_q - u_port.done_q;
  for (genvar i = 0; i < 2; i++) begin : g_slot
    assign held_by_slot[i] = begun_q[i] + 3'(u_port.pending_q && u_port.kind_q.slot == 1'(i));
  end

  always_ff @(posedge clk_i) begin
    if (rst_nq) begin
      // Nothing while it wipes.
      if (!open) assert (!key_ready && !block_ready && !out_valid);
      // A result waits until it is taken.
      if (held_q && !wipe_i) assert (out_valid);
      // Counts.
      assert (stored <= 3'(Depth));
      assert (working <= stored);
      if (!wipe.active) begin
        assert (4'(u_port.inside_q[0]) + 4'(u_port.inside_q[1]) == 4'(working));
        assert (u_port.inside_q[0] == held_by_slot[0] && u_port.inside_q[1] == held_by_slot[1]);
        assert (u_port.inside_q[0] <= 3'(Depth) && u_port.inside_q[1] <= 3'(Depth));
        assert (begun_q[0] <= 3'(Depth) && begun_q[1] <= 3'(Depth));
        // The block that waits is the last one, and so under the newest key or the one before.
        if (u_port.pending_q && u_port.kind_q.slot != last_q) assert (begun_q[u_port.kind_q.slot] == '0);
        if (working != '0 && !u_port.pending_q && u_port.slot_q != last_q) assert (begun_q[u_port.slot_q] == '0);
        if (u_port.pending_q && u_port.kind_q.slot != u_port.slot_q) assert (begun_q[u_port.slot_q] == '0);
        if (begun_q[u_port.slot_q] != '0) assert (last_q == u_port.slot_q);
      end else begin
        assert (stored == '0 && !u_port.pending_q);
      end
      // The followed block.
      assert (inside_q || !given_q);
      if (inside_q && open) begin
        assert (ahead_q < stored);
        assert (ahead_q == at_q - u_port.head_q);
        assert (u_port.tags_q[at_q[1:0]] == tag_q);
        if (given_q) begin
          assert (ahead_q < stored - working);
          assert (u_port.results_q[at_q[1:0]] == {127'b0, value_q});
        end else begin
          assert (before_q < working);
          assert (before_q == at_q - u_port.done_q);
          // Those of the former key are in front of those of the newest.
          assert ((slot_q != u_port.slot_q) == (before_q < u_port.inside_q[!u_port.slot_q]));
          // Its key stays: whatever comes goes into the other slot.
          if (key.valid) assert (key.slot != slot_q);
          if (result.valid && before_q == '0) assert (result.slot == slot_q);
        end
        if (leave && ahead_q == '0) assert (given_q && tag == tag_q && block == {127'b0, value_q});
      end
      cover (gone_q && u_port.slot_q != slot_q && stored == 3'(Depth));
    end
  end
endmodule
